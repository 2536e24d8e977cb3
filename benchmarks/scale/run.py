"""Rows per second and peak memory of training and prediction on tables that stay in their files.

    python benchmarks/scale/run.py --rows 1e5 1e6 1e7
    python benchmarks/scale/run.py --rows 1e6 --workers 2     # on Ray, beside the other processes of this machine

Each line is of a process of its own, whose peak memory it has: the table is made by `make_table`, fitted, and the model
is evaluated on new rows.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS, CHUNK, NEW_ROWS = 20, 100_000, 20_000


def draw_rows(n, generator):
    """Twenty columns, of which five matter; the noise of y depends on one of them."""
    x = generator.normal(size=(n, COLUMNS)).astype(np.float32)
    sigma = 0.2 + 0.4 / (1 + np.exp(-2 * x[:, 3]))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 4] + sigma * generator.normal(size=n)
    return pd.DataFrame(x, columns=[f"x{number}" for number in range(COLUMNS)]), y, sigma


def make_table(rows, path):
    generator = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, CHUNK):
        X, y, _ = draw_rows(min(CHUNK, rows - start), generator)
        table = pa.Table.from_pandas(X.assign(y=y), preserve_index=False)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def measure(rows, workers, settings, path):
    """One line of the table, of the model that is fitted in this process."""
    from hetcal import HCRegressor, evaluate

    model, start = HCRegressor(random_state=0, **settings), time.perf_counter()
    if workers:
        import ray

        import hetcal.ray

        ray.init(num_cpus=workers + 2, include_dashboard=False, log_to_driver=False)
        with tempfile.TemporaryDirectory() as storage:
            data = ray.data.read_parquet(str(path))
            model = hetcal.ray.fit(model, data, "y", num_workers=workers, storage_path=storage)
        ray.shutdown()
    else:
        model.fit(path, "y")
    fitted = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    X, y, sigma = draw_rows(NEW_ROWS, np.random.default_rng(1))
    result = evaluate(y, model.predict_dist(X))
    start = time.perf_counter()
    for _ in range(5):
        model.predict_interval(X)
    predicted = (time.perf_counter() - start) / 5
    return {
        "rows": rows,
        "workers": workers,
        "settings": settings,
        "fit_seconds": round(fitted, 1),
        "rows_per_second": round(rows / fitted),
        "peak_memory_gb": round(memory, 2),
        "predicted_rows_per_second": round(len(y) / predicted),
        "crps": round(result["crps"], 4),
        "crps_of_the_truth": round(float(np.mean(sigma)) / np.sqrt(np.pi), 4),
        "ce": round(result["ce"], 4),
        "coverage_90": round(result["coverage_90"], 4),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--workers", type=int, default=0, help="workers of Ray; 0 fits in this process")
    parser.add_argument("--max-steps", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None, help="where tables are made and kept; by default for once")
    parser.add_argument("--here", action="store_true", help="measure in this process, whose memory may be larger")
    options = parser.parse_args()
    if options.folder is not None:
        run(options, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(options, Path(folder))


def run(options, folder):
    settings = {} if options.max_steps is None else {"max_steps": options.max_steps}
    for rows in map(int, options.rows):
        path = folder / f"hetcal-scale-{rows}.parquet"
        if not path.exists():
            make_table(rows, path)
        if options.here:
            print(json.dumps(measure(rows, options.workers, settings, path)), flush=True)
            continue
        given = [] if options.max_steps is None else ["--max-steps", str(options.max_steps)]
        given += ["--rows", str(rows), "--workers", str(options.workers), "--folder", str(folder)]
        subprocess.run([sys.executable, __file__, "--here", *given], check=True)


if __name__ == "__main__":
    main()
