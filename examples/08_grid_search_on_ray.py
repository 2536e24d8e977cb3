"""scikit-learn's own tools on a Ray cluster: `n_jobs` of a grid search, through Ray's backend for joblib."""

import logging

import joblib
import ray
from ray.util.joblib import register_ray
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, train_test_split

from hetcal import HCRegressor, evaluate

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.35, random_state=0)

# Two CPUs of this machine; on a cluster ray.init("auto"). Every machine of it needs hetcal.
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
register_ray()
model = HCRegressor(estimator="variance_head", learning_rate=0.01, max_epochs=100, random_state=0)
search = GridSearchCV(model, {"width": [16, 64]}, cv=2, scoring="neg_mean_squared_error")
with joblib.parallel_config(backend="ray", n_jobs=2):
    search.fit(X_train, y_train)
ray.shutdown()

print("best width:", search.best_params_["width"])
prediction = search.best_estimator_.predict_dist(X_test)
print(f"90 % intervals cover {evaluate(y_test, prediction)['coverage_90']:.0%} of the test rows")
