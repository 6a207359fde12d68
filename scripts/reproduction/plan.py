"""From rows and tasks to steps: what is prepared, trained, fine-tuned and evaluated, and what is left out and why."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import DictConfig

from fairseq_tn.checkpoints import updates_to_keep
from fairseq_tn.errors import UserError
from reproduction.rows import ROOT, ROWS, Row, Task
from reproduction.settings import Hardware, as_yaml, identity, pretraining_config
from reproduction.steps import Step, Store

# the recipes that fine-tune, by the kind of their tasks
_RECIPES = ROOT / "examples" / "finetune"
# of --small, by the kind of a task
_SMALL_UPDATES = {"glue": 60, "squad": 60, "tagging": 100}
_SMALL_OPTIONS = {"glue": ("--lr", "5e-4"), "squad": (), "tagging": ()}
_EVERY = {"en": 8, "zh": 2}  # documents, of which --small holds out one


@dataclass(frozen=True)
class Inputs:
    """What the user has.

    Attributes:
        models: folder with a folder for each of the weights, of Hugging Face or converted.
        corpora: folder with ``en``, ``zh`` and ``owt`` of ``fairseq-preprocess``.
        data: folder of the downstream data.
        vectors: word vectors for synonyms.
        wordnet: WordNet's files; None: where they are looked for.
        init: with ``--small``: the Hugging Face folder to start from.
        dump: with ``--small``: Wikipedia dump of the English text.
        chinese: with ``--small``: Chinese text, characters or words between blanks, a blank line between documents.
    """

    models: Path | None = None
    corpora: Path | None = None
    data: Path | None = None
    vectors: Path | None = None
    wordnet: Path | None = None
    init: Path | None = None
    dump: Path | None = None
    chinese: Path | None = None


@dataclass(frozen=True)
class Options:
    """How it is run; see ``scripts/reproduce.sh --help``."""

    hardware: Hardware
    small: bool = False
    seeds: int = 1
    updates: int | None = None
    fine_tuning_updates: int | None = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Start:
    """Weights and vocabulary that a row trains from.

    Attributes:
        data: folder of ``fairseq-preprocess``.
        model: checkpoint; None: from scratch.
        tokenizer, dictionary: for what is fine-tuned later.
        after: the steps that make them.
        inputs: what of it comes from outside.
    """

    data: Path
    model: Path | None
    tokenizer: str
    dictionary: Path
    after: tuple[Step, ...] = ()
    inputs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """A fine-tuned and evaluated model: the step, and the file with its result."""

    row: Row
    task: Task
    seed: int
    step: Step
    result: Path
    update: int | None = None


@dataclass
class Plan:
    """All that is to be done.

    Attributes:
        pretraining: by the row's name, of the rows that train.
        evaluations: in the order of the tables.
        skipped: what is left out, by name, and why.
    """

    pretraining: dict[str, Step] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> list[Step]:
        """Pre-training and evaluation of one row, then of the next."""
        order: dict[str, Step] = {}
        for row in ROWS.values():
            if row.name in self.pretraining:
                order[row.name] = self.pretraining[row.name]
            for evaluation in self.evaluations:
                if evaluation.row is row:
                    order[evaluation.step.name] = evaluation.step
        return list(order.values())


class Planner:
    """Makes the plan of a call; two rows that start alike share the steps before."""

    def __init__(self, store: Store, inputs: Inputs, options: Options):
        self.store = store
        self.inputs = inputs
        self.options = options
        self._steps: dict[str, Step] = {}
        self._prepared: dict[str, Path] = {}

    def plan(self, rows: Sequence[Row], tasks: Sequence[Task], skip: bool, curve: Task | None = None) -> Plan:
        """The steps of these rows.

        Args:
            rows: to be pre-trained and evaluated.
            tasks: to be evaluated on.
            skip: leave rows out, by name, whose weights, text or synonyms are missing, instead of ending.
            curve: fine-tune each kept checkpoint on this task instead.

        Raises:
            UserError: something is missing, and ``skip`` is False or nothing is left
        """
        plan = Plan()
        for row in rows:
            try:
                start = self.start(row)
                step = self.pretraining(row, start) if row.trains else None
            except UserError as error:
                if not skip:
                    raise UserError(f"{row.name}: {error}") from None
                plan.skipped[row.name] = str(error)
                continue
            if step is not None:
                plan.pretraining[row.name] = step
            self._evaluate(plan, row, start, step, [curve] if curve else tasks, curve is not None)
        if not plan.steps:
            missing = "; ".join(f"{name}: {reason}" for name, reason in plan.skipped.items())
            raise UserError(
                f"nothing can be done; what is missing: {missing}"
                if missing
                else "nothing can be done: these rows train nothing, and no task of their language judges them"
            )
        return plan

    def _evaluate(
        self, plan: Plan, row: Row, start: Start, step: Step | None, tasks: Sequence[Task], curve: bool
    ) -> None:
        for task in tasks:
            if task.language != _language(row):
                continue
            files = task.find(self.inputs.data)
            if files is None:
                folder = self.inputs.data or "--data, which is not given"
                plan.skipped[task.name] = f"no {task.missing()} in {folder}"
                continue
            for update, checkpoint in self._checkpoints(row, start, step, curve):
                for seed in range(1, self.options.seeds + 1):
                    plan.evaluations.append(
                        self._fine_tuning(row, start, step, task, files, seed, checkpoint, update)
                    )

    def _checkpoints(
        self, row: Row, start: Start, step: Step | None, curve: bool
    ) -> list[tuple[int | None, Path]]:
        """The checkpoint of the row, or with ``curve`` each that is kept, with its update."""
        if step is None:
            assert start.model is not None
            return [(0 if curve else None, start.model)]
        folder = self.folder(row) / "pre-train"
        if not curve:
            return [(None, folder / "checkpoint_last.pt")]
        config = self._config(row, start)
        updates = updates_to_keep(
            config.task.get("keep_checkpoints_at", []),
            config.optimization.max_update,
            config.checkpoint.save_interval_updates,
        )
        first: list[tuple[int | None, Path]] = [] if start.model is None else [(0, start.model)]
        return first + [(update, folder / f"checkpoint_at_{update}.pt") for update in updates]

    # --- pre-training

    def folder(self, row: Row) -> Path:
        """Everything of a row."""
        return self.store.folder / "rows" / row.name

    def _config(self, row: Row, start: Start, synonyms: Path | None = None) -> DictConfig:
        return pretraining_config(
            row,
            data=start.data,
            save_dir=self.folder(row) / "pre-train",
            hardware=self.options.hardware,
            start=start.model,
            synonyms=synonyms,
            small=self.options.small,
            updates=self.options.updates,
            overrides=self.options.overrides,
        )

    def pretraining(self, row: Row, start: Start) -> Step:
        """The step that pre-trains a row; others may start together with it, after what makes its inputs."""
        after, inputs = start.after, start.inputs
        synonyms = None
        if row.synonyms is not None:
            table = self.synonyms(row, start)
            synonyms, after = table.outputs[0], (*after, table)
        config = self._config(row, start, synonyms)
        return self._training(f"{row.name}/pre-train", self.folder(row) / "pre-train", config, after, inputs)

    def _training(
        self, name: str, folder: Path, config: DictConfig, after: tuple[Step, ...], inputs: tuple[Path, ...]
    ) -> Step:
        port = self.store.launch.port(len(self._steps))
        if port is not None:
            config.distributed_training.distributed_port = port
        config_name = f"{folder.name}-config"
        return self._step(
            name,
            ("fairseq-hydra-train", "--config-dir", str(folder.parent), "--config-name", config_name),
            # the folder, so that a fresh start finds none of an older run's checkpoints
            (folder, folder / "checkpoint_last.pt"),
            inputs,
            after,
            settings=identity(config),
            files={folder.parent / f"{config_name}.yaml": as_yaml(config)},
            cwd=folder,
            trains=True,
        )

    def synonyms(self, row: Row, start: Start) -> Step:
        """The table of a row with hard correction.

        Raises:
            UserError: it needs word vectors, and there are none
        """
        name = f"{_language(row) if self.options.small else row.text}-{row.synonyms}"
        output = self.store.folder / "synonyms" / f"{name}.txt"
        command = ("fairseq-tn", "synonyms", "build", "--source", str(row.synonyms))
        inputs: tuple[Path, ...] = ()
        if row.synonyms == "vectors":
            if self.inputs.vectors is None:
                raise UserError(
                    "its synonyms come from word vectors: give --vectors FILE (word2vec, GloVe, fastText)"
                )
            command += ("--vectors", str(self.inputs.vectors))
            inputs = (self.inputs.vectors,)
        elif self.inputs.wordnet is not None:
            command += ("--wordnet", str(self.inputs.wordnet))
        command += ("--vocab", str(start.data / "dict.txt"), "--output", str(output))
        if not self.options.small:
            inputs += (start.data / "dict.txt",)
        return self._step(f"synonyms/{name}", command, (output,), inputs, start.after)

    # --- where rows start

    def start(self, row: Row) -> Start:
        """Weights, text and vocabulary of a row.

        Raises:
            UserError: they are missing
        """
        if self.options.small:
            return self._small_start(row)
        if self.inputs.corpora is None or not (self.inputs.corpora / row.text / "dict.txt").is_file():
            raise UserError(f"no {row.text}/dict.txt in --corpora {self.inputs.corpora or '(not given)'}")
        data = self.inputs.corpora / row.text
        folder, after, inputs = self._weights(row.vocabulary)
        model = None if row.start is None else folder / "model.pt"
        return Start(data, model, str(folder / "hf"), data / "dict.txt", after, (data, *inputs))

    def _weights(self, name: str) -> tuple[Path, tuple[Step, ...], tuple[Path, ...]]:
        """The converted folder of these weights, the step that converts them, and what comes from outside."""
        folder = None if self.inputs.models is None else self.inputs.models / name
        if folder is None or not folder.is_dir():
            raise UserError(f"no {name} in --models {self.inputs.models or '(not given)'}")
        if (folder / "model.pt").is_file():
            return folder, (), (folder / "model.pt", folder / "dict.txt")
        generator = folder.with_name(f"{name}-generator")
        pair = ("--generator", str(generator)) if generator.is_dir() else ()
        output = self.store.folder / "models" / name
        command = ("fairseq-tn", "convert", "from-hf", str(folder), *pair, "--output", str(output))
        inputs = (folder, generator) if pair else (folder,)
        step = self._step(f"models/{name}", command, (output,), inputs)
        return output, (step,), ()

    def _small_start(self, row: Row) -> Start:
        if row.text == "zh":
            data = self._small_corpus("zh", "words", self.inputs.chinese)
            return self._small_warm_start(
                row, Start(self._prepared["zh"], None, "words", self._prepared["zh"] / "dict.txt", (data,))
            )
        if self.inputs.init is None or self.inputs.dump is None:
            raise UserError("--small starts from a BERT and a Wikipedia dump: give --init and --dump")
        data = self._small_corpus("en", str(self.inputs.init), self.inputs.dump)
        bert = self.store.folder / "models" / "small"
        command = ("fairseq-tn", "convert", "from-hf", str(self.inputs.init), "--output", str(bert))
        convert = self._step("models/small", command, (bert,), (self.inputs.init,))
        after = (data, convert)
        start = Start(self._prepared["en"], bert / "model.pt", str(bert / "hf"), bert / "dict.txt", after)
        if row.family == "electra":
            return Start(start.data, None, start.tokenizer, start.dictionary, after)
        return self._small_warm_start(row, start)

    def _small_warm_start(self, row: Row, start: Start) -> Start:
        """Start of the small rows: a masked-LM head that has learned as long as the rows train afterwards."""
        language = _language(row)
        folder = self.store.folder / "start" / language
        step = self._steps.get(f"start/{language}")
        if step is None:
            config = pretraining_config(
                ROWS["bert-base-chinese-mt" if language == "zh" else "bert-base-mt"],
                data=start.data,
                save_dir=folder,
                hardware=self.options.hardware,
                start=start.model,
                small=True,
                updates=self.options.updates,
            )
            config.task.keep_checkpoints_at = []
            step = self._training(f"start/{language}", folder, config, start.after, ())
        model = folder / "checkpoint_last.pt"
        return Start(start.data, model, start.tokenizer, start.dictionary, (*start.after, step))

    def _small_corpus(self, language: str, tokenizer: str, source: Path | None) -> Step:
        """Binarised text, some documents held out: of a dump (en), or of text with blanks between tokens (zh)."""
        folder = self.store.folder / "text" / language
        if source is None:
            raise UserError(
                "the small Chinese rows need text: give --chinese-text FILE, characters between blanks"
            )
        self._prepared[language] = folder / "data"
        text, after, inputs = source, (), (source,)
        if language == "en":
            text = folder / "all.txt"
            command = ("fairseq-tn", "wikipedia", str(source), "--output", str(text), "--workers", "2")
            after, inputs = (self._step("text/en/wikipedia", command, (text,), inputs),), ()  # type: ignore[assignment]
        parts = {split: folder / f"{split}.txt" for split in ("train", "valid")}
        program = f"{{ print > (NR % {_EVERY[language]} ? train : valid) }}"
        command = ("awk", "-v", "RS=", "-v", r"ORS=\n\n")
        command += tuple(word for name, path in parts.items() for word in ("-v", f"{name}={path}"))
        split = self._step(
            f"text/{language}/split", (*command, program, str(text)), tuple(parts.values()), inputs, after
        )
        encoded = folder / "encoded"
        dictionary = ("--dict", str(encoded / "dict.txt")) if tokenizer == "words" else ()
        steps = [split]
        for name, path in parts.items():
            command = (
                "fairseq-tn",
                "encode",
                "--tokenizer",
                tokenizer,
                str(path),
                "--output",
                str(encoded / name),
            )
            if name != "train":
                command += dictionary
            outside = () if tokenizer == "words" else (Path(tokenizer),)
            outputs = (encoded / name,)
            steps.append(
                self._step(f"text/{language}/encode-{name}", command, outputs, outside, (steps[-1],))
            )
        command = ("fairseq-preprocess", "--only-source", "--srcdict", str(encoded / "dict.txt"))
        command += ("--trainpref", str(encoded / "train"), "--validpref", str(encoded / "valid"))
        command += ("--destdir", str(folder / "data"), "--workers", "2")
        return self._step(f"text/{language}/preprocess", command, (folder / "data",), (), (steps[-1],))

    # --- fine-tuning

    def _fine_tuning(
        self,
        row: Row,
        start: Start,
        step: Step | None,
        task: Task,
        files: dict[str, Path],
        seed: int,
        checkpoint: Path,
        update: int | None,
    ) -> Evaluation:
        recipe = _RECIPES / task.kind / "train.sh"
        if update is None:
            place, name, output = row.name, row.name, self.folder(row) / "fine-tune"
        elif update == 0:  # the start of several rows
            place = name = f"start-{checkpoint.parent.name}"
            output = self.store.folder / "curve-starts" / name
        else:
            place, name = f"{row.name}/curve/{update}", f"{row.name}-{update}"
            output = self.folder(row) / "curve" / str(update)
        where = (
            "--checkpoint",
            str(checkpoint),
            "--tokenizer",
            start.tokenizer,
            "--dict",
            str(start.dictionary),
        )
        command: tuple[str, ...] = (
            str(recipe),
            *where,
            "--method",
            name,
            "--seed",
            str(seed),
            "--output",
            str(output),
        )
        match task.kind:
            case "glue":
                command += ("--task", task.name, "--data", str(files["train"].parent))
                result = f"{task.name}-{name}-{seed}"
            case "squad":
                version = task.name.split()[-1]
                command += (
                    "--version",
                    version,
                    "--train",
                    str(files["train"]),
                    "--valid",
                    str(files["valid"]),
                )
                result = f"{version}-{name}-{seed}"
            case _:
                command += ("--task", task.name)
                command += tuple(word for split, path in files.items() for word in (f"--{split}", str(path)))
                split = "test" if "test" in files else "valid"
                result = f"{task.name.replace(' ', '_')}-{name}-{seed}-{split}"
        gpus = self.options.hardware.gpus
        precision = "fp32" if self.options.hardware.precision == "fp32" else "fp16"
        hardware = ("--gpus", str(min(gpus, 1)), "--precision", precision)
        command += hardware
        updates = self.options.fine_tuning_updates
        if self.options.small:
            command += ("--small", *_SMALL_OPTIONS[task.kind])
            updates = updates or _SMALL_UPDATES[task.kind]
        if updates is not None:
            further = ["--max-update", str(updates)]
            if task.kind != "tagging":  # a constant rate there
                further += ["--total-num-update", str(updates)]
            command += ("--", *further)
        path = output / "results" / f"{result}.json"
        outputs: tuple[Path, ...] = (path,)
        if task.kind == "squad":
            # this recipe goes on with what it finds there, which may have begun with another model of the same name
            outputs = (output / "runs" / result, path)
        slug = task.name.replace(" ", "_")
        inputs = (files["train"].parent,) if task.kind == "glue" else tuple(files.values())
        fine_tuning = self._step(
            f"{place}/{slug}-{seed}",
            command,
            outputs,
            (*inputs, *(() if step else start.inputs)),
            (step,) if step and update != 0 else start.after,
            settings={"recipe": _digest_of_scripts(recipe.parent, _RECIPES, _RECIPES.parent)},
        )
        return Evaluation(row, task, seed, fine_tuning, path, update)

    def _step(self, name: str, command: Sequence[str], *arguments, **options) -> Step:
        """A step, or the one of the same name that was made for another row."""
        if name not in self._steps:
            self._steps[name] = Step(name, tuple(command), *arguments, **options)
        return self._steps[name]


def _language(row: Row) -> str:
    """Of the row's text, whichever text it is."""
    return "zh" if row.text == "zh" else "en"


def _digest_of_scripts(*folders: Path) -> str:
    """Of the contents of a recipe's scripts: a check-out changes the times of files that stay the same."""
    scripts = [
        path for folder in folders for path in sorted(folder.iterdir()) if path.suffix in (".sh", ".py")
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in scripts)).hexdigest()
