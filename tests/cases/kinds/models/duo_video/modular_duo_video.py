class DuoVideoConfig:
    pass


class DuoVideoTokenizer:
    pass


class DuoVideoTextKwargs:
    pass


class DuoVideoProcessorKwargs:
    text_kwargs: DuoVideoTextKwargs


# `DuoVideo` is the model: what is left of this name is `Processor`.
class DuoVideoProcessor:
    valid_kwargs = DuoVideoProcessorKwargs


class DuoVideoImageProcessorKwargs:
    pass


class DuoVideoImageProcessor:
    valid_kwargs = DuoVideoImageProcessorKwargs


class DuoVideoVideoProcessorInitKwargs:
    pass


class DuoVideoVideoProcessor:
    valid_kwargs = DuoVideoVideoProcessorInitKwargs


class DuoVideoFeatureExtractor:
    pass


class DuoVideoTokenizerFast:
    pass


class DuoVideoModel:
    config_class = DuoVideoConfig
    processors = (DuoVideoProcessor, DuoVideoVideoProcessor)


__all__ = [
    "DuoVideoConfig",
    "DuoVideoModel",
    "DuoVideoTokenizer",
    "DuoVideoProcessor",
    "DuoVideoImageProcessor",
    "DuoVideoVideoProcessor",
    "DuoVideoFeatureExtractor",
    "DuoVideoTokenizerFast",
]
