"""A model in pipeline stages on the processes of a group, run by the schedules of ``torch.distributed.pipelining``."""
