"""transformers' ``Trainer`` with a parallelized model: it trains and evaluates as one process does."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from accelerate.data_loader import prepare_data_loader
from accelerate.utils import recursively_apply
from transformers import Trainer
from transformers.trainer_utils import BestRun, HPSearchBackend, default_compute_objective, default_hp_space_optuna

from modular_converter.parallel.engine.group.kept_gathered import WATCHED
from modular_converter.parallel.engine.group.spread import each_once
from modular_converter.parallel.errors import ApplyError, MissingLibraryError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.transformers_private import set_trial_arguments


if TYPE_CHECKING:
    from modular_converter.parallel.trainer.search import SharedTrial


class LayoutTrainer(Trainer):  # type: ignore[misc]
    """transformers' ``Trainer`` for the result of ``parallelize(layout=…)``, in any layout without ``pp``.

    The processes that divide layers get the same rows, and data ranks those that one process would have in a batch of
    ``per_device_train_batch_size * layout.data``, in the same order; predictions and losses of an evaluation are gathered
    once from each data rank. Arguments are those of ``Trainer``; ``model_init`` gives a parallelized model, and the one
    before is freed first.

    Raises ``ApplyError`` for a model that no layout divides, for one in stages, for one with shares that are plain
    tensors, and for options under which processes would get other rows.
    """

    args: Any
    model: Any
    compute_loss_func: Any

    def __init__(self, model: Any = None, *args: Any, **kwargs: Any) -> None:
        if model is not None:
            _check_model(model)
        super().__init__(model, *args, **kwargs)
        self._loss_is_checked = False
        if self.compute_loss_func is not None:
            self.compute_loss_func = self._checked_loss(self.compute_loss_func)

    def create_accelerator_and_postprocess(self) -> None:
        """As in ``Trainer``; batches are divided over data ranks, and not over all processes."""
        _check_options(self.args)
        super().create_accelerator_and_postprocess()
        self.accelerator.prepare_data_loader = self._loader_of_data_rank
        self.gather_function = self.accelerator.gather_for_metrics = self._gathered_once

    def _loader_of_data_rank(self, loader: Any, device_placement: bool | None = None, **more: Any) -> Any:
        accelerator = self.accelerator
        return prepare_data_loader(
            loader,
            accelerator.device,
            num_processes=self.model.layout.data,
            process_index=self.model.data_rank,
            split_batches=accelerator.split_batches,
            put_on_device=accelerator.device_placement if device_placement is None else device_placement,
            rng_types=accelerator.rng_types.copy(),
            dispatch_batches=False,
            use_seedable_sampler=accelerator.use_seedable_sampler,
            data_seed=accelerator.dataloader_config.data_seed,
            non_blocking=accelerator.non_blocking,
        )

    def _gathered_once(self, values: Any) -> Any:
        """The rows of all data ranks in their order, without those that fill up the last batch."""
        state, layout = self.accelerator.gradient_state, self.model.layout
        kept = state.remainder if state.end_of_dataloader and state.remainder > 0 else None

        def rows(value: torch.Tensor) -> torch.Tensor:
            # Processes that share a data rank follow one another.
            every: torch.Tensor = self.accelerator.gather(value).unflatten(0, (layout.data, layout.sharers, -1))
            return every[:, 0].flatten(0, 1)[:kept]

        return recursively_apply(rows, values, error_on_other_type=True)

    def get_tp_size(self) -> int:
        """The number of processes that get the same rows."""
        return int(self.model.layout.sharers)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """As in ``Trainer``; in an evaluation, or of a model that does not divide by the number of the whole batch, the mean of this
        process's batch.

        Raises ``ApplyError`` in the first step if ``compute_loss_func`` is no sum divided by the number that it gets.
        """
        batch = self.model.__dict__[WATCHED].batch
        own = self.compute_loss_func is None and self.label_smoother is None and batch is not None
        is_mean = own and num_items_in_batch is not None and not batch.divides(inputs.get("labels"))
        counted = None if is_mean or not model.training else num_items_in_batch
        return super().compute_loss(model, inputs, return_outputs=return_outputs, num_items_in_batch=counted)

    def _checked_loss(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """A ``compute_loss_func``, whose losses data ranks add: a mean would be that of each one's rows, times their number."""

        def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
            found = own(outputs, labels, num_items_in_batch=num_items_in_batch)
            if num_items_in_batch is not None and self.model.layout.data > 1 and not self._loss_is_checked:
                with torch.no_grad():
                    half = own(outputs, labels, num_items_in_batch=2 * num_items_in_batch)
                if not torch.allclose(2 * half, found.detach(), rtol=1e-3):
                    raise ApplyError(
                        "compute_loss_func must return a sum divided by num_items_in_batch, the number of the whole batch: data ranks "
                        "add what each returns for its rows"
                    )
                self._loss_is_checked = True
            return found

        return loss

    @contextlib.contextmanager
    def _defer_fsdp_gradient_reduction(self) -> Iterator[None]:
        """While gradients are accumulated, data ranks sum them in the last forward of a step alone."""
        self.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.model.set_requires_gradient_sync(True)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in ``Trainer``, which would keep the batch of its constructor, or of the last trial, when ``args`` change."""
        self._train_batch_size = self.args.train_batch_size
        return super().train(*args, **kwargs)

    def call_model_init(self, trial: Any = None) -> Any:
        """A new model, of which the trainer's last one is no longer there; all processes must call it."""
        if (handler := getattr(self, "callback_handler", None)) is not None:
            for owner in (self, handler):
                owner.model = owner.optimizer = owner.lr_scheduler = None
            self.model_wrapped = None
            self.accelerator.free_memory()
        made = super().call_model_init(trial)
        _check_model(made)
        return made

    def hyperparameter_search(
        self,
        hp_space: Callable[[Any], dict[str, Any]] | None = None,
        compute_objective: Callable[[dict[str, float]], Any] | None = None,
        n_trials: int | None = 20,
        direction: str | list[str] = "minimize",
        backend: str | None = None,
        hp_name: Callable[[Any], str] | None = None,
        **kwargs: Any,
    ) -> BestRun | list[BestRun]:
        """Search with Optuna: process 0 owns the study, and all processes draw the same trials; all must call it.

        Each trial begins with the trainer's own arguments and a model of ``model_init``. ``hp_space`` and ``model_init``
        get a ``SharedTrial``. A trial that a pruner of Optuna stops ends on all processes at the same evaluation.

        Args:
            hp_space: of a trial, name in ``TrainingArguments`` -> value; the default of transformers if None.
            compute_objective: the objective, or a sequence of several, of the metrics of an evaluation; the figures of
                process 0 count.
            n_trials: more trials; None with ``timeout=``.
            direction: ``"minimize"`` or ``"maximize"``; a list for several objectives, whose trials are not pruned.
            backend: ``"optuna"``, or None.
            hp_name: the name of a trial's folder.
            kwargs: of ``optuna.create_study`` (``storage``, ``study_name``, ``load_if_exists``, ``sampler``, ``pruner``),
                ``timeout`` (seconds after which no trial begins), and ``catch``: errors that fail a trial and do not end
                the search, where no process is left in the trial.

        Returns:
            On all processes, the best trial, or with several objectives those that no other one beats in all of them;
            ``run_summary`` is the ``SearchSummary`` of all trials.

        Raises ``ApplyError`` for another backend, without ``model_init``, and if no trial was completed, and
        ``MissingLibraryError`` without Optuna.
        """
        if HPSearchBackend(backend or "optuna") is not HPSearchBackend.OPTUNA:
            raise ApplyError(
                f'backend={backend!r} starts trials of its own, each in one process: give backend="optuna", which runs '
                "trials on the processes of the layout"
            )
        if self.model_init is None:
            raise ApplyError("hyperparameter_search needs a new model for each trial: give model_init= and no model=")
        if importlib.util.find_spec("optuna") is None:
            raise MissingLibraryError("optuna", "tune")
        from modular_converter.parallel.trainer.search import best_runs, search_with_optuna

        self.hp_search_backend, self.hp_name = HPSearchBackend.OPTUNA, hp_name
        self.hp_space = _known_only(hp_space or default_hp_space_optuna, self.args)
        self.compute_objective = compute_objective or default_compute_objective
        own = self.args

        def run(trial: SharedTrial) -> Any:
            self.args = copy.copy(own)  # what another trial has set is not there
            # `train` does this again, but after it has made a model with the old seed.
            set_trial_arguments(self, trial)
            self.objective = None
            self.train(trial=trial)
            return self.compute_objective(self.evaluate()) if self.objective is None else self.objective

        try:
            summary = search_with_optuna(run, n_trials, direction, kwargs)
        finally:
            self.args, self.hp_search_backend = own, None
        return best_runs(summary)


def _known_only(space: Callable[[Any], dict[str, Any]], args: Any) -> Callable[[Any], dict[str, Any]]:
    """A space of which each name must be one of ``TrainingArguments``; ``Trainer`` would leave others out."""

    def known(trial: Any) -> dict[str, Any]:
        drawn = space(trial)
        if unknown := [name for name in drawn if not hasattr(args, name)]:
            raise ApplyError(
                f"hp_space gives {', '.join(unknown)}, which TrainingArguments do not have: what only model_init needs, "
                "draw there, as model_init(trial)"
            )
        return drawn

    return known


def _check_options(args: Any) -> None:
    if args.load_best_model_at_end:
        raise ApplyError(
            "TrainingArguments: leave out load_best_model_at_end, since Trainer would load whole weights into shares: after train(), "
            "parallelize the folder trainer.state.best_model_checkpoint"
        )
    config = args.accelerator_config
    wrong = ["dispatch_batches"] * bool(config.dispatch_batches) + ["even_batches=False"] * (not config.even_batches)
    wrong += ["eval_use_gather_object"] * args.eval_use_gather_object
    wrong += ["average_tokens_across_devices=False"] * (not args.average_tokens_across_devices)
    if wrong:
        raise ApplyError(
            f"TrainingArguments: leave out {', '.join(wrong)}: each data rank reads its own rows, all make the same number of "
            "steps, and a loss is the mean over the rows of all"
        )


def _check_model(model: Any) -> None:
    layout = getattr(model, "layout", None)
    if not isinstance(layout, Layout):
        raise ApplyError(
            f"{type(model).__name__} is not parallelized: give LayoutTrainer the result of parallelize(model, layout=…)"
        )
    if layout.pp > 1:
        raise ApplyError(
            f"{layout}: a Trainer has no steps of stages: take a layout without pp, or the pipeline's step"
        )
    if layout.size != dist.get_world_size():
        raise ApplyError("LayoutTrainer needs parallelize(model, layout=…) over all processes, and not mesh=")
    part = next((one.name for one in each_once(model) if one.is_part), None) if layout.size > 1 else None
    if layout.size > 1 and (part or not model.is_distributed_loading_by_transformers):
        raise ApplyError(
            f"{layout}: this model has shares that are plain tensors, such as {part or 'copies of key/value heads'}, which a "
            "Trainer would count once in its norm: take fewer processes in tp, such as fsdp in their place"
        )
