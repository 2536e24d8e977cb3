"""From a table to prediction intervals in a dozen lines: fit, predict, evaluate, plot."""

from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from hetcal import HCRegressor, evaluate
from hetcal.plots import plot_calibration, plot_intervals

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.35, random_state=0)

model = HCRegressor(random_state=0, progress=True).fit(X_train, y_train)
prediction = model.predict_dist(X_test)  # mean, std, intervals and quantiles, with the shape that was learned
print(evaluate(y_test, prediction)["verdict"])

figure = Figure(figsize=(11, 5), layout="constrained")
left, right = figure.subplots(1, 2)
plot_calibration(y_test, prediction, ax=left)
plot_intervals(y_test, prediction, ax=right)
figure.savefig("quickstart.png", dpi=150)
print("quickstart.png written")
