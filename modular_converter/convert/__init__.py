"""The conversion of modular files: one file in `pipeline.py`, many in `batch.py`."""
