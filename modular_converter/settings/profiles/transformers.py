"""The conventions of the transformers library.

The keys are those of `[tool.modular-converter]` in a pyproject.toml, which may override each of them; its `kinds` and
`kept-names` are added to the ones here.
"""

from __future__ import annotations

from collections.abc import Mapping


# Python and not TOML: a parser for each run would take 6 ms, of 225 for a check in which nothing has changed.
TABLE: Mapping[str, object] = {
    # The package that holds the neighbours, and what stands before a model's folder in the banner of a generated file:
    # the path in the source repository, also when an installed package is converted. "" stands for the real path.
    "package": "transformers",
    "banner-root": "src/transformers/models",
    # Where the model-type -> config-class table is read from, below the models folder, in this order, and its name.
    "auto-tables": ["auto/auto_mappings.py", "auto/configuration_auto.py"],
    "config-table": "CONFIG_MAPPING_NAMES",
    # A configuration class is called <Model>Config: its name without this is the model's cased name. Such a class is
    # imported from the configuration file, never from the modeling file.
    "config-suffix": "Config",
    # Folders of the models folder that are no models, so an import from them is an ordinary import.
    "no-models": ["auto"],
    # Comments `# Copied from …` are checked by a script of the library; they do not hold for a renamed copy.
    "copy-comment": "Copied from",
    # Third-party names that contain a model's name and are never renamed, as whole tokens.
    "kept-names": [
        "mamba_ssm",
        "mamba-ssm",
        "use_mambapy",
        "mamba_inner_fn",
        "mamba_selective_state_update",
        "mamba_selective_scan",
        "is_mambapy_available",
        "mamba2_split_conv1d_scan_combined",
        "mamba2_selective_state_update",
        "mamba2_chunk_scan",
    ],
    # Kinds of generated file that must work without the optional libraries. Their imports of these libraries go into a
    # block `if is_torch_available():`; the function is imported from the package's module before the last dot.
    "optional-kinds": ["image_processing_pil", "feature_extraction"],
    "optional-libraries": ["torch", "torchvision"],
    "availability-check": "utils.is_{library}_available",
    # The base of every model. Each model derives a base of its own (GemmaPreTrainedModel), so a call on the library's
    # base reaches the same method as `super()`.
    "model-base": "PreTrainedModel",
    # The statement that initialises the weights: what would follow it in an `__init__` would be initialised too late.
    "last-statement": "self.post_init()",
    # Decorators that an override adds to those of the parent's method, where it has no others. Over the parent's
    #     @deprecate_kwarg("mask", …)        this override       @can_return_tuple
    #     @can_return_tuple                  @deprecate_kwarg    @auto_docstring
    #     @auto_docstring                    ("cache", …)        @deprecate_kwarg("cache", …)
    #     def forward(self):                                     def forward(self):
    # becomes the one on the right.
    "added-decorators": ["deprecate_kwarg"],
    # The quotes of a method's docstring that an override without one takes: `"""Cut it."""`, but not `"Cut it."`
    # (`HYV4VLVideoProcessor.patchify` in 5.24; no release before has such a method).
    "inherited-docstrings": ['"""', "'''"],
    # The assignments that open a file, whatever needs them.
    "first-assignments": ["logger", "_CHECKPOINT_FOR_DOC", "_CONFIG_FOR_DOC"],
    # A modular file may set these for its model: an assignment whose name contains one of them replaces the parent
    # module's, also for inherited code; of those in the second list, one that is `None` does not.
    "overriding-assignments": ["_CHECKPOINT", "_EXPECTED", "_FOR_DOC", "_HIDDEN_STATES_START_POSITION"],
    "overriding-unless-none": ["_DOCSTRING"],
    # Every file has a logger, whether or not anything uses it.
    "customary-names": ["logger"],
    # The decorator that `modularize` imports for a class or method without decorators whose parent has some.
    "no-inherit-module": "...utils.generic",
    # What a new model needs beside its modular file; `modular-convert new` prints it.
    "left-after-converting": [
        "docs/source/en/model_doc/{model}.md: a page about {Model}, and its entry in docs/source/en/_toctree.yml",
        "tests/models/{model}/: tests of {Model}",
        "make fix-repo: style, copies, docstrings, and the files whose heads say that a program writes them",
    ],
    # Where configurations and models keep their plans of parallelism.
    "plan-names": [
        "base_model_tp_plan",
        "base_model_pp_plan",
        "base_model_ep_plan",
        "_tp_plan",
        "_pp_plan",
        "_ep_plan",
        "ep_plan",
    ],
    # Where models list classes of their own by name.
    "class-lists": ["_no_split_modules"],
    # "ruff", "black" or "none". Without a ruff configuration of the project, ruff runs under transformers.ruff.toml.
    "formatter": "ruff",
    # The version of that formatter with which the library is formatted. Another version writes nothing (MC118).
    "formatter-version": "0.14.10",
    # "error" or "warning": a changed dependency that the generated model would not use (MC201).
    "replaced-dependency": "error",
    # The kind of a class that no suffix in `kinds` sends elsewhere.
    "default-kind": "modeling",
    # No source above this size is read.
    "max-file-bytes": 4_000_000,
    # The kind of a class by the longest suffix of its name. The file of a kind is
    # `<kind>_<model>.py`, unless the kind says where the model's name goes: "tokenization_{model}_fast".
    "kinds": {
        "Config": "configuration",
        "Tokenizer": "tokenization",
        "Processor": "processing",
        "ProcessorKwargs": "processing",
        "TextKwargs": "processing",
        "ImagesKwargs": "processing",
        "VideosKwargs": "processing",
        "ImageProcessor": "image_processing",
        "ImageProcessorKwargs": "image_processing",
        "ImageProcessorPil": "image_processing_pil",
        "VideoProcessor": "video_processing",
        "VideoProcessorKwargs": "video_processing",
        "VideoProcessorInitKwargs": "video_processing",
        "FeatureExtractor": "feature_extraction",
    },
    # A file of the first kind must work where a file of the second cannot be imported: it copies what it needs from it.
    "copied-kinds": {
        "image_processing_pil": "image_processing",
    },
    # A class with the first base does not list the second, which the first inherits from.
    "implied-bases": {
        "GradientCheckpointingLayer": "nn.Module",
    },
    # The newest release whose generated files were all compared (utils/check_releases.py). A newer one may have conventions
    # that nobody here has seen, so nothing that exists is changed in it until the project accepts it (MC394).
    "checked-release": "5.24.0",
    # The conventions of older releases of the package, the newest first: each table holds for all releases before its
    # own. The release is that of the package which the models lie in.
    "older": [
        {
            # `@deprecate_kwarg` was a decorator as any other: alone above an override, it was the only one
            # (`Qwen2_5OmniVisionBlock.forward` in 5.10 to 5.22).
            "before": "5.24",
            "added-decorators": [],
        },
        {
            "before": "5.18",
            "kinds": {"VideoProcessorKwargs": "processing"},
        },
        {
            # The first release with both is 5.15.1 (`feature_extraction_nemotron_asr_streaming.py`, `modeling_bamba.py`).
            "before": "5.15",
            "optional-kinds": ["image_processing_pil"],
            "kept-names": [],
        },
        {
            # A pil file imported from its sibling (`image_processing_pil_glm46v.py` of 5.4.0).
            "before": "5.5",
            "copied-kinds": {},
        },
        {
            "before": "5.4",
            "kinds": {
                "ImageProcessorFast": "image_processing_{model}_fast",
                "FastImageProcessorKwargs": "image_processing_{model}_fast",
            },
        },
    ],
}
