"""`testbed predict`: what an experiment should take, worked out without a fabric."""

from testbed.predict.figure import Figure, Prediction
from testbed.predict.predict import predict

__all__ = ["Figure", "Prediction", "predict"]
