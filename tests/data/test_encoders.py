"""Every kind of tokenizer: the pieces of its own library, a dictionary that fits, and nothing fairseq misreads."""

import json
import random
import subprocess
import sys

import pytest
import sacremoses
import sentencepiece
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from fairseq.tokenizer import tokenize_line
from small_tokenizers import train_gpt2, train_sentencepiece, train_subword_nmt, train_wordpiece
from subword_nmt.apply_bpe import BPE

from fairseq_tn.cli import main
from fairseq_tn.data.encode import encode_corpus
from fairseq_tn.data.encoders import EncoderOptions, load_encoder
from fairseq_tn.errors import UserError

RESERVED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def sentences(number, seed=0):
    """Sentences of made-up words in several scripts, with capitals, figures and marks."""
    rng = random.Random(seed)
    syllables = ["ba", "lo", "mi", "té", "ran", "gu", "sto", "не", "вод", "数", "据"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(80)]
    lines = []
    for _ in range(number):
        line = rng.choices(words, k=rng.randint(2, 12))
        line[0] = line[0].capitalize()
        line.insert(rng.randrange(len(line)), rng.choice(["1,024", "don't", "(so)", "a&b", "e.g.", "--"]))
        lines.append(" ".join(line) + rng.choice([".", "!", "?", "..."]))
    return lines


TEXT = sentences(400)
# blanks of several kinds, characters that no tokenizer has seen, tabs, an end that Windows writes
ODD = [
    "  two  blanks ",
    "tab\there",
    "Ω≈ 🤗",
    "bal\r",
    "a\u00a0b",
    "x\u2028y",
    *(f"ba {s} lo{s}mi" for s in RESERVED),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    train_sentencepiece(TEXT, folder, 300)
    (folder / "gpt2").mkdir()
    train_gpt2(TEXT, folder / "gpt2")
    moses = sacremoses.MosesTokenizer("en")
    words = [moses.tokenize(line, escape=False, return_str=True) for line in TEXT]
    train_subword_nmt([*TEXT, *words], folder, 150)
    train_wordpiece(TEXT, folder, 300)
    return folder


def kinds(folder):
    codes = {"codes": str(folder / "codes"), "vocabulary": str(folder / "vocabulary")}
    return {
        "sentencepiece": (str(folder / "small.model"), {}),
        "gpt2": (str(folder / "gpt2"), {}),
        "moses": ("moses", {}),
        "words": ("words", {}),
        "subword-nmt": ("subword-nmt", codes),
        "moses with codes": ("moses", {**codes, "keep_case": True}),
        "wordpiece": (str(folder / "vocab.txt"), {}),
    }


KINDS = ["sentencepiece", "gpt2", "moses", "words", "subword-nmt", "moses with codes", "wordpiece"]


def encoder_of(folder, kind):
    tokenizer, options = kinds(folder)[kind]
    return load_encoder(tokenizer, EncoderOptions(**options))


def command(folder, kind):
    tokenizer, options = kinds(folder)[kind]
    words = ["--tokenizer", tokenizer]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-")] + ([] if value is True else [value])
    return words


def reference(folder, kind):
    """Each line's pieces by the library itself; what the vocabulary lacks is None."""
    if kind == "sentencepiece":
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "small.model"))
        return lambda line: [
            None if processor.piece_to_id(piece) == processor.unk_id() else piece
            for piece in processor.encode(line, out_type=str)
        ]
    if kind == "gpt2":
        encoder = get_encoder(str(folder / "gpt2" / "encoder.json"), str(folder / "gpt2" / "vocab.bpe"))
        return lambda line: list(map(str, encoder.encode(line.strip())))
    moses = sacremoses.MosesTokenizer("en")
    if kind == "moses":
        return lambda line: moses.tokenize(line, escape=False, return_str=True).lower().split()
    counts = dict(line.split() for line in (folder / "vocabulary").read_text(encoding="utf-8").splitlines())
    with open(folder / "codes", encoding="utf-8") as file:
        bpe = BPE(file, vocab=set(counts))

    def segment(line):
        if kind == "moses with codes":
            line = moses.tokenize(line, escape=False, return_str=True)
        return [piece if piece in counts else None for piece in bpe.segment(line).split()]

    return segment


@pytest.mark.parametrize("kind", ["sentencepiece", "gpt2", "moses", "subword-nmt", "moses with codes"])
def test_the_pieces_are_those_of_the_library(trained, kind):
    encoder, by_library = encoder_of(trained, kind), reference(trained, kind)
    lines = [*sentences(300, seed=1), "unseen Zürich 12.5 %", "  two  blanks ", "Ω≈ 🤗"]
    expected = [["<unk>" if piece is None else piece for piece in by_library(line)] for line in lines]
    assert encoder.encode(lines) == expected
    assert len({piece for line in expected for piece in line}) > 50


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_from_text_to_a_data_folder(trained, kind, workers, tmp_path, monkeypatch, capsys):
    """The command, then the dictionary as fairseq reads it: lines, documents and unknowns are what was said."""
    monkeypatch.setattr("fairseq_tn.data.streams.BLOCK_BYTES", 3000)
    source, output = tmp_path / "text", tmp_path / "out" / "train"
    lines = [*TEXT[:100], "", *ODD, "", *TEXT[100:200]]
    source.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    arguments = [str(source), "--output", str(output), "--workers", str(workers)]
    assert main(["encode", *command(trained, kind), *arguments]) == 0
    said = capsys.readouterr().out
    written = output.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert [not line for line in written] == [not line for line in lines]
    assert f"3 documents, {len(lines) - 2} sentences" in said

    dictionary = Dictionary.load(str(output.parent / "dict.txt"))
    symbols = [symbol for line in written for symbol in line.split(" ") if symbol]
    for line in written:
        assert tokenize_line(line) == (line.split(" ") if line else [])
    # a literal special symbol in the text never becomes one
    assert not {"<s>", "<pad>", "</s>", "<mask>"} & set(symbols)
    unknown = sum(dictionary.index(symbol) == dictionary.unk() for symbol in symbols)
    assert f"{len(symbols):,} tokens ({unknown:,} <unk>" in said
    assert unknown < 0.05 * len(symbols)


def test_real_preprocessing_of_each_kind(trained, tmp_path):
    """fairseq-preprocess replaces nothing that encode has written, but for words that it left for that."""
    (tmp_path / "text").write_text("".join(line + "\n" for line in TEXT), encoding="utf-8")
    for kind in ("sentencepiece", "gpt2", "subword-nmt", "moses"):
        output = tmp_path / kind / "train"
        arguments = [str(tmp_path / "text"), "--output", str(output), "--workers", "1"]
        assert main(["encode", *command(trained, kind), *arguments]) == 0
    code = (
        "import sys\nfrom fairseq_cli import preprocess\nfrom fairseq.options import get_preprocessing_parser\n"
        "for folder in sys.argv[1:]:\n"
        "    words = f'--only-source --srcdict {folder}/dict.txt --trainpref {folder}/train --destdir {folder}/data'\n"
        "    preprocess.main(get_preprocessing_parser().parse_args(words.split()))\n"
    )
    folders = [str(tmp_path / kind) for kind in ("sentencepiece", "gpt2", "subword-nmt", "moses")]
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    replaced = [line for line in done.stderr.splitlines() if "replaced (by <unk>)" in line]
    assert len(replaced) == 4
    assert all(f"{len(TEXT)} sents" in line and " 0.0% replaced" in line for line in replaced)


def test_a_built_dictionary_is_the_one_of_fairseq(tmp_path):
    source = tmp_path / "text"
    source.write_text("b a a\n\nc b a d\n<s> Ü ü\n")
    for options, finalize in (
        ([], {}),
        (["--threshold", "2"], {"threshold": 2}),
        (["--nwords", "6"], {"nwords": 6}),
    ):
        output = tmp_path / "-".join(["out", *options]) / "train"
        assert main(["encode", str(source), "--tokenizer", "moses", "--output", str(output), *options]) == 0
        expected = Dictionary()
        for line in output.read_text().splitlines():
            expected.encode_line(line, append_eos=False)
        expected.finalize(padding_factor=1, **finalize)
        expected.save(str(tmp_path / "expected"))
        assert (output.parent / "dict.txt").read_text() == (tmp_path / "expected").read_text()


@pytest.mark.parametrize("limit", [{"threshold": 9}, {"nwords": 4}])
def test_a_dictionary_without_words_is_refused(tmp_path, limit):
    (tmp_path / "in").write_text("hello world\n")
    with pytest.raises(UserError, match=r"no word of the text .* lower --threshold or raise --nwords"):
        encode_corpus(load_encoder("words"), [tmp_path / "in"], tmp_path / "train", **limit)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_built_dictionary_serves_the_next_split(tmp_path, capsys):
    (tmp_path / "text").write_text("one two\n")
    (tmp_path / "more").write_text("two three\n")
    start = ["encode", "--tokenizer", "moses", "--workers", "1"]
    assert main([*start, str(tmp_path / "text"), "--output", str(tmp_path / "train")]) == 0
    valid = [str(tmp_path / "more"), "--output", str(tmp_path / "valid")]
    assert main([*start, *valid]) == 1
    assert "dict.txt exists; give it with --dict" in capsys.readouterr().err
    assert main([*start, *valid, "--dict", str(tmp_path / "dict.txt")]) == 0
    assert (tmp_path / "valid").read_text() == "two <unk>\n"
    assert "1 <unk>, 50.00 %" in capsys.readouterr().out


def test_dictionary_beside_the_model(trained, tmp_path):
    """XLM-R's and RoBERTa's dict.txt lie beside their tokenizers, in another order and with more symbols."""
    model = tmp_path / "small.model"
    model.write_bytes((trained / "small.model").read_bytes())
    own = load_encoder(str(model)).dict_text().splitlines(keepends=True)
    changed = "".join([*own[:0:-1], "madeupword0000 0\n"])
    (tmp_path / "dict.txt").write_text(changed, encoding="utf-8")
    encoder = load_encoder(str(model))
    assert encoder.dict_text() == changed
    lacking = own[0].split(" ")[0]
    symbols = {symbol for line in encoder.encode(TEXT) for symbol in line}
    assert lacking not in symbols
    assert len(symbols) > 50
    assert encoder.encode(TEXT) == load_encoder(str(tmp_path)).encode(TEXT)

    for name in ("encoder.json", "vocab.bpe"):
        (tmp_path / name).write_bytes((trained / "gpt2" / name).read_bytes())
    number = len(json.loads((tmp_path / "encoder.json").read_text()))
    ids = [f"{index} 7\n" for index in reversed(range(number))]
    (tmp_path / "dict.txt").write_text("".join([*ids, "madeupword0000 0\n"]))
    assert load_encoder(str(tmp_path / "vocab.bpe")).dict_text() == "".join([*ids, "madeupword0000 0\n"])


def test_pieces_that_bear_special_names_are_unknown(tmp_path):
    model = train_sentencepiece(TEXT, tmp_path, 300, user_defined_symbols=["<mask>", "<sep>"], pad_id=3)
    encoder = load_encoder(str(model))
    # the library takes <mask> for a piece, and spells its control symbol </s>
    (line,) = encoder.encode(["ba<mask>ba <sep> </s>"])
    assert "<unk>" in line
    assert "<sep>" in line
    assert not {"<mask>", "</s>"} & set(line)
    listed = [row.split(" ")[0] for row in encoder.dict_text().splitlines()]
    assert not set(RESERVED) & set(listed)
    assert "<sep>" in listed


def test_moses_options():
    assert load_encoder("moses").encode(["Don't stop, J. Smith & Söhne!"]) == [
        ["don", "'t", "stop", ",", "j.", "smith", "&", "söhne", "!"]
    ]
    kept = load_encoder("moses", EncoderOptions(language="de", keep_case=True))
    assert kept.encode(["Z.B. Don't"]) == [
        sacremoses.MosesTokenizer("de").tokenize("Z.B. Don't", escape=False)
    ]
    with pytest.raises(UserError, match="--language xx is unknown"):
        load_encoder("moses", EncoderOptions(language="xx"))


def test_vocabulary_threshold_splits_rare_pieces(tmp_path):
    codes, vocabulary = train_subword_nmt(["lower lower lower low low"], tmp_path)
    options = {"codes": str(codes), "vocabulary": str(vocabulary)}
    vocabulary.write_text("lower 3\nlow 2\nlow@@ 5\nl@@ 9\no@@ 9\nw@@ 9\ne@@ 9\nr 9\nw 9\n")
    assert load_encoder("subword-nmt", EncoderOptions(**options)).encode(["lower"]) == [["lower"]]
    strict = EncoderOptions(**options, vocabulary_threshold=9)
    assert load_encoder("subword-nmt", strict).encode(["lower"]) == [["l@@", "o@@", "w@@", "e@@", "r"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--tokenizer gone.model", "gone.model does not exist"),
        ("--tokenizer text", "text is of no known kind"),
        ("--tokenizer empty", "is a folder without a tokenizer"),
        ("--tokenizer broken.model", "broken.model is no SentencePiece model"),
        ("--tokenizer two", "several SentencePiece models (a.model, b.model)"),
        (
            "--tokenizer small.model --dict vocabulary",
            "vocabulary is of another vocabulary than the SentencePiece",
        ),
        ("--tokenizer beside", "dict.txt is of another vocabulary than the SentencePiece model"),
        ("--tokenizer small.model --dict gone.txt", "cannot read the vocabulary gone.txt"),
        ("--tokenizer small.model --dict text", "text, line 1: expected 'symbol count'"),
        ("--tokenizer gpt2 --dict vocabulary", "another vocabulary than the GPT-2 ids"),
        ("--tokenizer lonely/encoder.json", "vocab.bpe: No such file"),
        ("--tokenizer mixed", "do not belong together"),
        ("--tokenizer vocab.txt --dict vocabulary", "vocabulary is of another vocabulary than vocab.txt"),
        (
            "--tokenizer moses --dict pieces.txt",
            "another vocabulary than plain words (its style: sentencepiece)",
        ),
        ("--tokenizer moses --dict cased.txt", "add --keep-case"),
        ("--tokenizer subword-nmt", "needs --codes"),
        ("--tokenizer subword-nmt --codes codes", "codes alone do not say"),
        (
            "--tokenizer subword-nmt --codes codes --dict pieces.txt",
            "another vocabulary than the codes of codes",
        ),
        ("--tokenizer subword-nmt --codes text --dict pieces.txt", "text, line 1: expected two symbols"),
        ("--tokenizer subword-nmt --codes codes --vocabulary text", "text, line 1: expected 'symbol count'"),
        ("--tokenizer moses --vocabulary vocabulary", "give --codes too"),
        ("--tokenizer small.model --codes codes", "--codes belongs to"),
        ("--tokenizer small.model --keep-case", "--keep-case is an option of --tokenizer moses"),
        ("--tokenizer small.model --threshold 3", "leave them out"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(trained, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    for name in ("small.model", "codes", "vocabulary", "vocab.txt", "gpt2"):
        (tmp_path / name).symlink_to(trained / name)
    (tmp_path / "text").write_text("ba lo mi\n")
    (tmp_path / "broken.model").write_bytes(b"\x00\x01 no model")
    for folder in ("empty", "two", "lonely", "mixed", "beside"):
        (tmp_path / folder).mkdir()
    for name in ("a.model", "b.model"):
        (tmp_path / "two" / name).symlink_to(trained / "small.model")
    (tmp_path / "lonely" / "encoder.json").symlink_to(trained / "gpt2" / "encoder.json")
    (tmp_path / "mixed" / "encoder.json").symlink_to(trained / "gpt2" / "encoder.json")
    (tmp_path / "mixed" / "vocab.bpe").write_text("#version: 0.2\nQ Z\n")
    (tmp_path / "beside" / "small.model").symlink_to(trained / "small.model")
    (tmp_path / "beside" / "dict.txt").write_text("".join(f"word{n} 1\n" for n in range(100)))
    (tmp_path / "pieces.txt").write_text("▁balo 1\n▁mist 1\n", encoding="utf-8")
    (tmp_path / "cased.txt").write_text("Ba 1\nlo 1\n")
    assert main(["encode", "text", *arguments.split(" "), "--output", "out/train", "--workers", "1"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list((tmp_path / "out").glob("*"))


def test_a_full_disk_leaves_nothing(trained, tmp_path):
    """A limit on the size of files fails a write as a full disk does."""
    (tmp_path / "text").write_text("".join(line + "\n" for line in TEXT), encoding="utf-8")
    code = (
        "import resource, sys\nfrom fairseq_tn.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)\nsys.exit(main(sys.argv[2:]))\n"
    )
    arguments = [
        "encode",
        str(tmp_path / "text"),
        "--tokenizer",
        str(trained / "small.model"),
        "--workers",
        "1",
    ]
    out = tmp_path / "out"
    main([*arguments, "--output", str(tmp_path / "whole" / "train")])
    small = tmp_path / "small"
    small.write_text("ba\n")
    assert (tmp_path / "whole" / "dict.txt").stat().st_size > 500
    # the text is too much; or it fits and the dictionary is too much
    for source, limit in ((tmp_path / "text", 8192), (small, 500)):
        arguments[1] = str(source)
        done = subprocess.run(
            [sys.executable, "-c", code, str(limit), *arguments, "--output", str(out / "train")],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert "fairseq-tn encode: error: " in done.stderr
        assert "File too large" in done.stderr
        assert "Traceback" not in done.stderr
        assert list(out.iterdir()) == []


def test_json_lines_through_the_command(trained, tmp_path):
    documents = [{"id": 1, "text": "Ba lo. Mi ran!\nGu sto."}, {"text": "Sto ba."}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    arguments = [
        "encode",
        str(tmp_path / "in.jsonl"),
        "--tokenizer",
        "moses",
        "--output",
        str(tmp_path / "train"),
    ]
    assert main([*arguments, "--field", "text", "--split-sentences", "--workers", "1"]) == 0
    assert (tmp_path / "train").read_text() == "ba lo .\nmi ran !\ngu sto .\n\nsto ba .\n\n"
