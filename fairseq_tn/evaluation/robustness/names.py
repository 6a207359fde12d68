"""Made-up names and lists of names, for fake answers and changed questions."""

import random

Pairs = tuple[tuple[str, str], ...]


def words(text: str) -> tuple[str, ...]:
    """The words of a text, for tables of words."""
    return tuple(text.split())


GIVEN_NAMES = words(
    "Adele Bernard Clara Duncan Edith Felix Greta Harold Imogen Jonas Katherine Leopold Miriam Nathan Olivia Patrick "
    "Rosalind Stefan Theresa Victor"
)
SURNAMES = words(
    "Aldridge Brennan Castellan Dahlberg Ellsworth Fairchild Garrick Holloway Ingram Jessop Kessler Lindqvist Marlowe "
    "Norwood Okafor Pemberton Quimby Rutherglen Sandoval Thornbury Underwood Vasquez Whitlock Yardley Zimmer"
)
CITIES = words(
    "Adelaide Bergen Bologna Calgary Cork Dresden Durban Fukuoka Ghent Gothenburg Graz Halifax Kyoto Leipzig Lima "
    "Lyon Malaga Nairobi Osaka Porto Quito Riga Salzburg Santiago Seville Tampere Tucson Turin Utrecht "
    "Valparaiso"
)
COUNTRIES = words(
    "Argentina Bolivia Bulgaria Chile Denmark Ecuador Estonia Finland Ghana Iceland Kenya Latvia Malaysia Morocco "
    "Nepal Norway Paraguay Peru Portugal Senegal Thailand Tunisia Uganda Uruguay Zambia"
)
ORGANISATIONS = (
    "the Aldridge Foundation",
    "the Northern Trade Council",
    "Halden Industries",
    "the Meridian Society",
    "Castellan and Sons",
    "the Institute of Coastal Studies",
    "the Harbour Commission",
    "Vantage Motors",
    "the League of Free Towns",
    "the Ellsworth Company",
    "the Federal Board of Roads",
    "Kessler Laboratories",
)
ACRONYMS = (
    "ADK",
    "BVRT",
    "CLM",
    "DNW",
    "EKF",
    "GTV",
    "HRL",
    "KPD",
    "MBX",
    "NTLW",
    "RVC",
    "TWG",
    "VKS",
    "WLR",
)
# adjective and plural noun of peoples, beliefs and political camps
PEOPLES = (
    ("Danish", "Danes"),
    ("Bulgarian", "Bulgarians"),
    ("Peruvian", "Peruvians"),
    ("Norwegian", "Norwegians"),
    ("Kenyan", "Kenyans"),
    ("Chilean", "Chileans"),
    ("Moroccan", "Moroccans"),
    ("Estonian", "Estonians"),
    ("Nepalese", "Nepalese"),
    ("Bolivian", "Bolivians"),
    ("Icelandic", "Icelanders"),
    ("Thai", "Thais"),
)
BELIEFS = (
    ("Buddhist", "Buddhists"),
    ("Hindu", "Hindus"),
    ("Quaker", "Quakers"),
    ("Taoist", "Taoists"),
    ("Methodist", "Methodists"),
    ("Sikh", "Sikhs"),
)
CAMPS = (
    ("Liberal", "Liberals"),
    ("Conservative", "Conservatives"),
    ("Socialist", "Socialists"),
    ("Monarchist", "Monarchists"),
)
# how names of beliefs and camps begin, in lower case
_BELIEF_STEMS = words(
    "buddh catholic calvin christ hindu huguenot islam jew luther method mormon muslim orthodox protest puritan quaker "
    "shi sikh sunni taois wahhab salaf"
)
_CAMP_STEMS = words("commun conserv democrat labour liberal marx nazi republican social tory whig")
MONTHS = words("January February March April May June July August September October November December")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
NUMBER_WORDS = words(
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen twenty "
    "thirty forty fifty"
)
ORDINALS = words("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth")
# closed classes whose members are changed for one another
CLASSES = (MONTHS, DAYS, NUMBER_WORDS, ORDINALS)


def person(rng: random.Random, size: int = 2) -> str:
    """A name of two words; of ``size`` 1, a surname."""
    surname = rng.choice(SURNAMES)
    return surname if size < 2 else f"{rng.choice(GIVEN_NAMES)} {surname}"


def people(name: str, plural: bool, rng: random.Random) -> str:
    """Another people, belief or camp than that of an adjective or plural noun such as "Norman" or "Muslims"."""
    lowered = name.lower()
    known: Pairs = PEOPLES
    if lowered.startswith(_BELIEF_STEMS):
        known = BELIEFS
    elif lowered.startswith(_CAMP_STEMS):
        known = CAMPS
    return rng.choice([pair[plural] for pair in known if name not in pair])


def other_of_class(word: str, rng: random.Random) -> str | None:
    """Another month, day, number word or ordinal, with the capitals of the word; None if it is none."""
    for members in CLASSES:
        lowered = [member.lower() for member in members]
        if word.lower() in lowered:
            chosen = rng.choice([member for member in members if member.lower() != word.lower()])
            return chosen if word[0].isupper() or members in (MONTHS, DAYS) else chosen.lower()
    return None
