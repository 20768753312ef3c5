"""A model straight from a folder with safetensors files: each rank reads its own ranges."""
