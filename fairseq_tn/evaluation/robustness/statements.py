"""From a question to declarative sentences with a gap for an answer, by rules over the parsed question.

The rules put the phrase that is asked for where an answer would stand: "What did Ann buy in 1990?" becomes "Ann bought
_ in 1990.", "Who bought it?" "_ bought it.", "In which year was it built?" "It was built in _.".
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fairseq_tn.evaluation.robustness.language import article_for, inflect_like
from fairseq_tn.evaluation.robustness.names import words

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

# What stands for a missing phrase in a statement.
GAP = "\0"
_WH = frozenset(words("what which who whom whose when where why how"))
_SUBJECTS = ("nsubj", "nsubjpass", "expl", "csubj")
_FINITE = ("MD", "VBD", "VBZ", "VBP")
_NOMINAL = ("what", "which", "who", "whom", "how many", "how much")
_LONGEST_PHRASE = 9
_TIMES = frozenset(words("year decade century month"))
_KINDS = frozenset(words("kind type sort form"))


class Inflected(NamedTuple):
    """A token that gets the form of a Penn Treebank tag."""

    token: int
    tag: str


# a part of a statement: the number of a token, as it is or inflected, or text
Piece = int | Inflected | str


@dataclass(frozen=True)
class AskedPhrase:
    """The phrase of a question that asks.

    Attributes:
        kind: ``who``, ``whom``, ``whose``, ``what``, ``which``, ``when``, ``where``, ``why``, ``how``, ``how many``,
            ``how much``, or ``how`` with an adjective or adverb as in ``how long``
        begin, end: its tokens, a preposition before it included
        word: the token of the asking word
        preposition: the token before it, as in "in which"; None if there is none
        noun: what is asked for, as in "which *language*": the last token of its first noun phrase; None if only the
            asking word says it
        in_place: whether it stands where the answer would
    """

    kind: str
    begin: int
    end: int
    word: int
    preposition: int | None
    noun: int | None
    in_place: bool


@dataclass(frozen=True)
class Statement:
    """A declarative sentence with one gap.

    Attributes:
        pattern: which rule made it
        pieces: tokens of the question and text, :data:`GAP` among them
        preposition: whether the gap wants one of its own, chosen with the answer ("when", "where", "why", "how")
    """

    pattern: str
    pieces: tuple[Piece, ...]
    preposition: bool = False


def asked_phrase(question: "Doc") -> AskedPhrase | None:
    """The phrase that asks; None if there is none or it is not clear."""
    stop = _stop(question)
    places = [token.i for token in question[:stop] if token.lower_ in _WH]
    start = next((token.i for token in question if not token.is_space), stop)
    for word in places:
        prefixed = (
            word - 1 >= start
            and question[word - 1].tag_ in ("IN", "TO")
            and question[word - 1].dep_ != "mark"
        )
        begin = word - 1 if prefixed else word
        if begin == start or question[begin - 1].text == ",":
            return _fronted(question, word, begin if prefixed else None, stop)
    for word in reversed(places):
        before = question[word - 1]
        if (before.pos_ in ("VERB", "AUX", "ADP") or before.tag_ == "TO") and before.lemma_ != "do":
            return _in_place(question, word, stop)
    return None


def wants_plural(question: "Doc", phrase: AskedPhrase) -> bool | None:
    """Whether the answer should be of many, by the noun that is asked for or the verb; None if both do not tell."""
    if phrase.in_place and phrase.noun is None:
        return True if question[phrase.begin - 1].lower_ in ("are", "were") else None
    verb = next((token for token in question[phrase.end :] if token.tag_ in _FINITE), None)
    if verb is not None and not phrase.in_place and phrase.kind in ("what", "which", "who"):
        agrees = verb.dep_ not in ("aux", "auxpass") or _subject(question, verb, _stop(question)) is None
        if agrees and (verb.lower_ in ("are", "were") or verb.tag_ in ("VBP", "VBZ") or verb.lower_ == "was"):
            return verb.lower_ in ("are", "were") or verb.tag_ == "VBP"
    return None if phrase.noun is None else question[phrase.noun].tag_ in ("NNS", "NNPS")


def statements(question: "Doc", phrase: AskedPhrase) -> list[Statement]:
    """Every declarative sentence that the rules make of a question; none if its grammar is not one that they know."""
    stop = _stop(question)
    if phrase.in_place:
        rest = range(phrase.end, stop)
        return [Statement("in place", (*range(_start(question), phrase.begin), *_gap(phrase), *rest))]
    prefix: tuple[Piece, ...] = tuple(range(_start(question), phrase.begin))
    body = list(_body(question, phrase, stop))
    if not prefix:
        return body
    return [
        Statement(one.pattern, (*prefix, *one.pieces), one.preposition)
        for one in body
        if one.pattern not in ("front", "cleft")
    ]


def render(
    question: "Doc", statement: Statement, answer: str, changes: Mapping[int, str], preposition: str = ""
) -> str:
    """A statement as a sentence.

    Args:
        question: whose tokens the pieces are
        statement: of :func:`statements`
        answer: for the gap
        changes: other words for tokens; "" leaves a token out
        preposition: before the answer, where the statement wants one
    """
    parts: list[str] = []
    blank = False
    for place, piece in enumerate(statement.pieces):
        if isinstance(piece, int):
            token = question[piece]
            if token.is_space:
                continue
            word = changes.get(piece, token.text)
            if piece == _start(question):
                word = _uncapitalised(token, word, piece in changes)
            following = statement.pieces[place + 1] if place + 1 < len(statement.pieces) else None
            glued = isinstance(following, int) and following == piece + 1 and not token.whitespace_
        elif isinstance(piece, Inflected):
            base = changes.get(piece.token) or question[piece.token].lower_
            word, glued = inflect_like(base, piece.tag, base) or base, False
        elif piece == GAP:
            word, glued = (
                f"{preposition} {answer}" if statement.preposition and preposition else answer,
                False,
            )
        else:
            word, glued = piece, False
        if not word:
            blank = blank or not glued
            continue
        if blank and word[0] not in ",.;:)'’%" and parts:
            parts.append(" ")
        parts.append(word)
        blank = not glued
    sentence = _with_articles("".join(parts).strip().rstrip(" ,.;:"))
    return sentence[:1].upper() + sentence[1:] + "."


def _with_articles(sentence: str) -> str:
    parts = sentence.split(" ")
    for place in range(len(parts) - 1):
        if parts[place].lower() in ("a", "an") and parts[place + 1][:1].isalnum():
            needed = article_for(parts[place + 1])
            parts[place] = needed.capitalize() if parts[place][0].isupper() else needed
    return " ".join(parts)


def _uncapitalised(token: "Token", word: str, changed: bool) -> str:
    keep = (
        changed
        or token.pos_ == "PROPN"
        or token.ent_type_
        or token.text == "I"
        or token.text[1:].lower() != token.text[1:]
    )
    return word if keep else word[:1].lower() + word[1:]


def _start(question: "Doc") -> int:
    return next((token.i for token in question if not token.is_space), len(question))


def _stop(question: "Doc") -> int:
    """The token after the last one that is no final punctuation."""
    stop = len(question)
    while stop and (question[stop - 1].is_space or question[stop - 1].text in ("?", ".", "!", "??", "?!")):
        stop -= 1
    return stop


def _fronted(question: "Doc", word: int, preposition: int | None, stop: int) -> AskedPhrase | None:
    begin = word if preposition is None else preposition
    asking = question[word].lower_
    if any(token.lower_ == "or" for token in question[word:stop]) and asking == "which":
        return None
    finite = next((token.i for token in question[word + 1 : stop] if token.tag_ in _FINITE), None)
    if finite is None or finite - word > _LONGEST_PHRASE:
        return None
    between = question[word + 1 : finite]
    if any(token.lower_ in _WH or token.text == "," or token.lower_ == "that" for token in between):
        return None
    kind, noun = asking, None
    if asking == "how" and len(between):
        first = question[word + 1]
        if first.lower_ in ("many", "much"):
            kind = f"how {first.lower_}"
            noun = _head_noun(question, word + 2, finite)
        elif first.pos_ in ("ADJ", "ADV") and len(between) == 1:
            kind = f"how {first.lower_}"
        else:
            return None
    elif asking in ("what", "which", "whose") and len(between):
        noun = _head_noun(question, word + 1, finite)
        if (
            noun is None
            and question[word + 1].lower_ != "of"
            and any(token.pos_ != "ADV" for token in between)
        ):
            return None
    elif any(token.pos_ not in ("ADV", "PART") for token in between):
        # "Who's ports", "who of them"
        return None
    end = finite
    if noun is None and kind == asking:
        # adverbs between the asking word and the verb belong to the verb
        end = word + 1
    return AskedPhrase(kind, begin, end, word, preposition, noun, in_place=False)


def _in_place(question: "Doc", word: int, stop: int) -> AskedPhrase | None:
    asking = question[word].lower_
    kind, noun, end = asking, None, word + 1
    if asking in ("how", "why", "whose"):
        if asking != "how" or word + 1 >= stop or question[word + 1].lower_ not in ("many", "much"):
            return None
        kind = f"how {question[word + 1].lower_}"
        end = word + 2
    place = end
    while place < stop and question[place].pos_ in ("ADJ", "NOUN", "PROPN", "NUM"):
        place += 1
    if place > end and question[place - 1].pos_ == "NOUN":
        noun, end = place - 1, place
        if question[noun].lemma_ in _KINDS and end + 1 < stop and question[end].lower_ == "of":
            # "what kind of bit rate"
            end = max(question[end].right_edge.i + 1, end + 2)
    following = question[end] if end < stop else None
    if following is not None and following.tag_ in (*_FINITE, "NN", "NNS", "PRP", "DT"):
        return None
    return AskedPhrase(kind, word, end, word, None, noun, in_place=True)


def _head_noun(question: "Doc", begin: int, end: int) -> int | None:
    """The last token of the first noun phrase: "language" in "language family of Asia" is "family"."""
    found = None
    for token in question[begin:end]:
        if token.pos_ in ("NOUN", "PROPN"):
            found = token.i
        elif found is not None or token.pos_ not in ("ADJ", "NUM", "DET", "ADV", "PUNCT", "PART", "VERB"):
            break
    return found


def _gap(phrase: AskedPhrase) -> tuple[Piece, ...]:
    """The gap with what stays of the phrase: "how many *people*"."""
    if phrase.kind in ("how many", "how much"):
        return (GAP, *range(phrase.word + 2, phrase.end))
    return (GAP,)


def _body(question: "Doc", phrase: AskedPhrase, stop: int) -> Iterator[Statement]:
    """The statements of a question whose asking phrase comes first."""
    finite = next((t.i for t in question[phrase.end : stop] if t.tag_ in _FINITE), None)
    if finite is None or any(token.pos_ not in ("ADV", "PART") for token in question[phrase.end : finite]):
        return
    lead = range(phrase.end, finite)
    verb = question[finite]
    if not verb.is_alpha:
        # "what's"
        return
    nominal = phrase.preposition is None and (phrase.kind in _NOMINAL or phrase.kind == "whose")
    auxiliary = verb.lemma_ in ("be", "have", "do") or verb.tag_ == "MD"
    subject = _subject(question, verb, stop) if auxiliary else None
    if subject is None:
        if (
            verb.lemma_ == "be"
            and nominal
            and phrase.noun is None
            and _begins_noun_phrase(question, finite + 1, stop)
        ):
            yield from _reversed_copula(question, phrase, verb, stop)
        elif (
            verb.lemma_ == "be"
            and phrase.kind in ("where", "when")
            and _begins_noun_phrase(question, finite + 1, stop)
        ):
            rest = range(finite + 1, stop)
            yield Statement("plain", (*rest, *lead, finite, GAP), preposition=True)
        elif nominal and not (auxiliary and _hides_subject(question, verb, stop)):
            rest = range(finite, stop)
            yield Statement("subject", (*_gap(phrase), *lead, *rest))
            if phrase.kind in ("who", "what", "which") and _is_singular(verb):
                yield Statement("cleft", ("it", _be(verb), GAP, "that", *lead, *rest))
        return
    yield from _inverted(question, phrase, verb, subject, stop, nominal)


def _hides_subject(question: "Doc", verb: "Token", stop: int) -> bool:
    """Whether what follows an auxiliary is probably its subject, though the parser did not see it."""
    if verb.lemma_ == "do":
        return True
    if not _begins_noun_phrase(question, verb.i + 1, stop):
        return False
    verbs = [
        t for t in question[verb.i + 1 : stop] if t.pos_ == "VERB" and t.dep_ not in ("acl", "relcl", "amod")
    ]
    if verb.lemma_ == "have":
        return any(token.tag_ == "VBN" for token in verbs)
    first = question[verb.i + 1]
    return first.pos_ in ("PROPN", "PRON") or bool(verbs) or question[stop - 1].tag_ in ("IN", "TO", "RP")


def _is_singular(verb: "Token") -> bool:
    return verb.tag_ in ("VBD", "VBZ", "MD") and verb.lower_ != "were"


def _be(verb: "Token") -> str:
    return "was" if verb.tag_ == "VBD" else "is"


def _reversed_copula(question: "Doc", phrase: AskedPhrase, verb: "Token", stop: int) -> Iterator[Statement]:
    """ "What is the capital of Peru?" """
    if question[stop - 1].dep_ == "prep" or question[stop - 1].tag_ in ("IN", "RP", "VBN", "VBD"):
        return
    negated = [t.i for t in question[verb.i + 1 : verb.i + 2] if t.dep_ == "neg"]
    rest = range(verb.i + 1 + len(negated), stop)
    yield Statement("copula", (*rest, verb.i, *negated, GAP))
    if not negated:
        yield Statement("answer first", (GAP, verb.i, *rest))


def _begins_noun_phrase(question: "Doc", place: int, stop: int) -> bool:
    while place < stop and (question[place].pos_ == "ADV" or question[place].dep_ == "neg"):
        place += 1
    if place >= stop:
        return False
    token = question[place]
    if token.pos_ in ("DET", "PROPN", "NOUN", "PRON", "NUM"):
        return True
    # "What is common law?", but not "What is common in Peru?"
    following = question[place + 1] if place + 1 < stop else None
    return token.pos_ == "ADJ" and following is not None and following.pos_ in ("NOUN", "PROPN", "ADJ")


def _subject(question: "Doc", verb: "Token", stop: int) -> "Token | None":
    heads = {verb.i, verb.head.i} if verb.dep_ in ("aux", "auxpass") else {verb.i}
    for token in question[verb.i + 1 : stop]:
        if token.dep_ in _SUBJECTS and token.head.i in heads:
            return token
    # "did the war end", parsed as a noun "war end"
    before = question[verb.head.i - 1] if verb.lemma_ == "do" and verb.head.i > verb.i + 1 else None
    return (
        before if before is not None and before.dep_ == "compound" and before.head.i == verb.head.i else None
    )


def _inverted(
    question: "Doc", phrase: AskedPhrase, verb: "Token", subject: "Token", stop: int, nominal: bool
) -> Iterator[Statement]:
    """An auxiliary or "be", the subject, and the rest."""
    main = verb.head if verb.dep_ in ("aux", "auxpass") and verb.head.i > subject.i else verb
    begin, end = subject.left_edge.i, subject.right_edge.i + 1
    if begin <= verb.i:
        return
    if (
        verb.lemma_ == "be"
        and nominal
        and any(question[place].lower_ == "compared" for place in range(end, stop))
    ):
        return
    if subject.dep_ == "compound":
        begin = next(
            token.i for token in question[verb.i + 1 : end] if token.dep_ != "neg" and token.pos_ != "ADV"
        )
    if main.i > subject.i:
        # adverbs before the verb are sometimes parsed as parts of the subject
        end = min(end, main.i)
        last = next(
            (c.i for c in main.lefts if c.dep_ in ("aux", "auxpass", "neg", "advmod") and c.i > subject.i),
            end,
        )
        end = min(end, last)
    elif not nominal or question[stop - 1].tag_ in ("IN", "TO", "RP"):
        # "was the bridge built", parsed as "the bridge that was built"
        end = min((c.left_edge.i for c in subject.rights if c.tag_ == "VBN" and c.dep_ == "acl"), default=end)
        if end == stop and question[end - 1].tag_ == "VBN" and end - 1 > subject.i:
            end -= 1
    # a subject that the parser cut short
    if question[end - 1].tag_ in ("WDT", "WP", "WRB", "IN", "DT"):
        return
    if main.i > subject.i and any(t.pos_ not in ("ADV", "AUX", "PART") for t in question[end : main.i]):
        return
    between = range(verb.i + 1, begin)
    if any(question[place].dep_ != "neg" and question[place].pos_ != "ADV" for place in between):
        return
    inner = [*range(begin, end)]
    rest = [*range(end, stop)]
    negated = any(question[place].dep_ == "neg" for place in between) or any(
        question[place].dep_ == "neg" and question[place].head.i == main.i for place in rest
    )
    if any(question[place].lemma_ == "do" and question[place].tag_ == "VB" for place in rest):
        # "What did it want to do?"
        return
    helper: list[Piece] = [verb.i, *between]
    replaced: dict[int, Piece] = {}
    if any(child.dep_ == "ccomp" for child in main.children):
        return
    if verb.lemma_ == "do":
        if main is verb or main.lemma_ == "do" or not main.is_alpha or main.pos_ == "PROPN":
            return
        if not negated:
            helper, replaced = [*between], {main.i: Inflected(main.i, verb.tag_)}
    elif main is verb and verb.lemma_ == "have":
        return
    elif (
        main is verb
        and nominal
        and phrase.noun is None
        and phrase.kind in ("who", "what", "which")
        and (not rest or question[rest[0]].tag_ in ("TO", "WDT", "WP", ","))
    ):
        # "What is the capital?"
        yield from _reversed_copula(question, phrase, verb, stop)
        return

    def pieces(insertions: Mapping[int, tuple[Piece, ...]]) -> Iterator[Piece]:
        """The whole sentence; insertions come before the tokens of these numbers."""
        yield from inner
        yield from helper
        for place in [*rest, stop]:
            yield from insertions.get(place, ())
            if place < stop:
                yield replaced.get(place, place)

    yield from _filled(question, phrase, verb, main, rest, stop, nominal, pieces)


def _filled(
    question: "Doc",
    phrase: AskedPhrase,
    verb: "Token",
    main: "Token",
    rest: list[int],
    stop: int,
    nominal: bool,
    pieces: Callable[[Mapping[int, tuple[Piece, ...]]], Iterator[Piece]],
) -> Iterator[Statement]:
    gap = _gap(phrase)
    if phrase.kind == "whose":
        return
    stranded = next(
        (
            place
            for place in rest
            if question[place].tag_ in ("IN", "TO", "RP") and _is_stranded(question[place], stop)
        ),
        None,
    )
    time = (
        phrase.kind in ("what", "which")
        and phrase.noun is not None
        and question[phrase.noun].lemma_ in _TIMES
    )
    if nominal and stranded is None and time:
        # "What year was it built?"
        yield Statement("plain", tuple(pieces({stop: gap})), preposition=True)
        yield Statement("front", (*gap, ",", *pieces({})), preposition=True)
    elif nominal or (stranded is not None and phrase.kind == "where"):
        place = stranded + 1 if stranded is not None else _object_place(question, phrase, main, rest, stop)
        yield Statement("plain", tuple(pieces({place: gap})))
        if (
            phrase.kind in ("what", "which")
            and phrase.noun is not None
            and verb.tag_ in ("VBD", "VBZ", "VBP")
        ):
            plural = question[phrase.noun].tag_ in ("NNS", "NNPS")
            be = {"VBD": ("was", "were")}.get(verb.tag_, ("is", "are"))[plural]
            noun = range(phrase.word + 1, phrase.end)
            yield Statement("relative", ("the", *noun, "that", *pieces({}), be, GAP))
    elif phrase.preposition is not None:
        if phrase.kind not in ("what", "which", "whom", "who", "how many", "how much"):
            return
        yield Statement("plain", tuple(pieces({stop: (phrase.preposition, *gap)})))
        yield Statement("front", (phrase.preposition, *gap, ",", *pieces({})))
    elif phrase.kind in ("when", "where", "why", "how"):
        yield Statement("plain", tuple(pieces({stop: gap})), preposition=True)
        if phrase.kind in ("when", "where") and rest:
            yield Statement("front", (*gap, ",", *pieces({})), preposition=True)
            yield Statement("cleft", ("it", _be(verb), *gap, "that", *pieces({})), preposition=True)
    elif phrase.kind == "how long" and main is not verb:
        yield Statement("plain", tuple(pieces({stop: ("for", GAP)})))
    elif main is verb and verb.lemma_ == "be" and not rest:
        yield Statement("plain", tuple(pieces({stop: gap})))


def _is_stranded(token: "Token", stop: int) -> bool:
    """Whether a preposition has nothing of its own: "What was it known *for*?" """
    if token.i == stop - 1 or (token.tag_ != "RP" and token.nbor(1).tag_ == "IN"):
        return token.dep_ != "prt"
    return token.dep_ in ("prep", "agent") and not any(child.i > token.i for child in token.children)


def _object_place(question: "Doc", phrase: AskedPhrase, main: "Token", rest: list[int], stop: int) -> int:
    """Before which token an object stands: behind its verb, the verb's particle and another object."""
    head = question[phrase.word if phrase.noun is None else phrase.noun]
    verb = head.head if head.head.pos_ in ("VERB", "AUX") and head.head.i in rest else main
    if verb.i not in rest:
        # "Peru's population was _ in 1901"
        return rest[0] if rest and verb.lemma_ == "be" and question[rest[0]].tag_ == "IN" else stop
    if verb.pos_ == "AUX" and verb.lemma_ == "be":
        return stop
    place = verb.i + 1
    for child in verb.rights:
        if (
            child.i in rest
            and child.dep_ in ("prt", "dobj", "dative")
            and child.left_edge.i == place
            and child.dep_ != "prep"
        ):
            if child.dep_ == "dative" and child.pos_ == "ADP":
                continue
            place = child.right_edge.i + 1
    return place
