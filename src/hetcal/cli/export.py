"""`hetcal export`: a model as ONNX."""

from typing import Any

from hetcal.cli.models import read_regressor
from hetcal.cli.options import ExportOptions
from hetcal.model_files.onnx import export_onnx


def export_file(options: ExportOptions) -> dict[str, Any]:
    """Write the ONNX graph of a model file."""
    regressor, _ = read_regressor(options.model)
    export_onnx(regressor, options.onnx)
    return {"command": options.command, "onnx": str(options.onnx)}
