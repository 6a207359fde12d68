"""How far below the heads each parameter of a model lies, for learning rates that differ by layer."""

import re

from torch import nn

# a stack of layers ("encoder.", "generator.", "encoder.sentence_encoder.") and one of its layers
_LAYER = re.compile(r"^((?:.+?\.)??)layers\.(\d+)\.")
_MARK = "below_heads_"


def mark_depth(model: nn.Module) -> None:
    """Note on every parameter how many steps it lies below the heads.

    The counting is ELECTRA's (``_get_layer_lrs`` of its ``optimization.py``): in a stack of n layers the embeddings
    have depth 0, layer l has depth l (1 to n), all that is above the layers has depth n + 2; noted is n + 2 - depth,
    which is 0 for heads, 2 for the last layer and n + 2 for the embeddings. ELECTRA's generator is a stack of its
    own. What stacks or heads share counts as the lowest of its places, as embeddings tied to a masked-LM head do.

    A stack is whatever holds ``layers.N.``; of what else it holds, names with "emb" are its embeddings. That fits
    ``tn_bert``, ``tn_electra`` and fairseq's ``roberta``; a model without layers stays unmarked.

    The note is fairseq's attribute ``param_group``, the one that its half-precision optimisers copy to their float32
    parameters. Parameters that are added later need another call.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    layers: dict[str, int] = {}
    for name, _ in named:
        if match := _LAYER.match(name):
            layers[match[1]] = max(layers.get(match[1], 0), int(match[2]) + 1)
    if not layers:
        return
    places: dict[nn.Parameter, int] = {}
    for name, parameter in named:
        places[parameter] = max(places.get(parameter, 0), _steps(name, layers))
    for parameter, steps in places.items():
        parameter.param_group = f"{_MARK}{steps}"  # type: ignore[attr-defined]


def mark_head(module: nn.Module) -> None:
    """Note on every parameter of a module that is a head, outside any model, that it is one."""
    for parameter in module.parameters():
        parameter.param_group = f"{_MARK}0"  # type: ignore[attr-defined]


def _steps(name: str, layers: dict[str, int]) -> int:
    if match := _LAYER.match(name):
        return layers[match[1]] + 1 - int(match[2])
    for stack, number in layers.items():
        if name.startswith(stack) and "emb" in name[len(stack) :].partition(".")[0]:
            return number + 2
    return 0


def steps_below_heads(parameter: nn.Parameter) -> int | None:
    """What :func:`mark_depth` has noted on ``parameter`` or on the parameter that it is a copy of; None if nothing."""
    group = str(getattr(parameter, "param_group", ""))
    return int(group.removeprefix(_MARK)) if group.startswith(_MARK) else None
