"""Which encoder the options of ``fairseq-tn encode`` name."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_tn.data.dictionary import FairseqDictionary
from fairseq_tn.data.encode import Encoder
from fairseq_tn.errors import UserError

MOSES, SUBWORD_NMT, WORDS = "moses", "subword-nmt", "words"
_KINDS = (
    "a BERT model's folder, vocab.txt or tokenizer.json; a SentencePiece FILE.model; a folder with GPT-2's "
    "encoder.json and vocab.bpe; moses; words; or subword-nmt with --codes"
)


@dataclass(frozen=True)
class EncoderOptions:
    """Options that some kinds of tokenizers take.

    dictionary: fairseq's dict.txt of the vocabulary.
    language, keep_case: of Moses.
    codes, vocabulary, vocabulary_threshold: of subword-nmt.
    """

    dictionary: str | None = None
    language: str | None = None
    keep_case: bool = False
    codes: str | None = None
    vocabulary: str | None = None
    vocabulary_threshold: int | None = None


def load_encoder(tokenizer: str, options: EncoderOptions | None = None) -> Encoder:
    """Return the encoder that ``--tokenizer`` names; raises UserError if there is none."""
    options = options or EncoderOptions()
    _check_options(tokenizer, options)
    if tokenizer in (MOSES, SUBWORD_NMT, WORDS):
        return _word_encoder(tokenizer, options)
    path = Path(tokenizer)
    if not path.exists():
        raise UserError(f"--tokenizer {tokenizer} does not exist; give {_KINDS}")
    if gpt2 := _gpt2_folder(path):
        from fairseq_tn.data.gpt2 import Gpt2Encoder

        return Gpt2Encoder(gpt2, options.dictionary)
    if model := _sentencepiece_model(path):
        from fairseq_tn.data.sentencepiece import SentencePieceEncoder

        return SentencePieceEncoder(model, options.dictionary)
    return _wordpiece_encoder(path, options.dictionary)


def _check_options(tokenizer: str, options: EncoderOptions) -> None:
    if tokenizer != MOSES and (options.language is not None or options.keep_case):
        name = "--keep-case" if options.keep_case else "--language"
        raise UserError(f"{name} is an option of --tokenizer moses; leave it out for {tokenizer}")
    if tokenizer not in (MOSES, SUBWORD_NMT) and options.codes is not None:
        raise UserError(f"--codes belongs to --tokenizer subword-nmt or moses; leave it out for {tokenizer}")
    if options.codes is None:
        if tokenizer == SUBWORD_NMT:
            raise UserError("--tokenizer subword-nmt needs --codes FILE, the output of subword-nmt learn-bpe")
        if options.vocabulary is not None:
            raise UserError("--vocabulary restricts subword-nmt's codes; give --codes too, or leave it out")
    if options.vocabulary is None and options.vocabulary_threshold is not None:
        raise UserError("--vocabulary-threshold needs --vocabulary")


def _word_encoder(tokenizer: str, options: EncoderOptions) -> Encoder:
    from fairseq_tn.data.words import Blanks, Moses, WordEncoder, WordSplitter

    splitter: WordSplitter = Blanks()
    if tokenizer == MOSES:
        splitter = Moses(options.language or "en", options.keep_case)
    dictionary = None if options.dictionary is None else FairseqDictionary.load(options.dictionary)
    if options.codes is None:
        return WordEncoder(splitter, dictionary)
    from fairseq_tn.data.subword_nmt import SubwordNmtEncoder

    return SubwordNmtEncoder(
        splitter, options.codes, dictionary, options.vocabulary, options.vocabulary_threshold or 0
    )


def _gpt2_folder(path: Path) -> Path | None:
    from fairseq_tn.data.gpt2 import ENCODER, MERGES

    if path.is_file():
        return path.parent if path.name in (ENCODER, MERGES) else None
    return path if (path / ENCODER).is_file() and (path / MERGES).is_file() else None


def _sentencepiece_model(path: Path) -> Path | None:
    if path.is_file():
        return path if path.suffix == ".model" else None
    if (path / "vocab.txt").is_file():
        return None
    models = sorted(path.glob("*.model"))
    if len(models) > 1:
        raise UserError(
            f"{path} holds several SentencePiece models ({', '.join(model.name for model in models)}); name one"
        )
    return models[0] if models else None


def _wordpiece_encoder(path: Path, dictionary: str | None) -> Encoder:
    from fairseq_tn.data.vocabulary import HuggingFaceVocabulary
    from fairseq_tn.data.wordpiece import WordPieceEncoder

    if path.is_file() and path.suffix not in (".txt", ".json"):
        raise UserError(f"--tokenizer {path} is of no known kind; give {_KINDS}")
    if path.is_dir() and not any((path / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise UserError(f"--tokenizer {path} is a folder without a tokenizer; give {_KINDS}")
    encoder = WordPieceEncoder(HuggingFaceVocabulary.load(path))
    if dictionary is not None:
        given = FairseqDictionary.load(dictionary)
        own = tuple(line.rsplit(" ", 1)[0] for line in encoder.dict_text().split("\n")[:-1])
        if given.symbols != own:
            raise UserError(
                f"{dictionary} is of another vocabulary than {path}; leave --dict out, and it is made from "
                "the tokenizer"
            )
    return encoder
