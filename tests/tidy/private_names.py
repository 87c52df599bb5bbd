"""Names that sources keep to themselves, read from the text of their anonymous namespaces."""

import re

from cpp_text import code_only


def _bodies(code):
    for match in re.finditer(r"\bnamespace\s*\{", code):
        depth = 1
        at = match.end()
        while at < len(code) and depth:
            depth += (code[at] == "{") - (code[at] == "}")
            at += 1
        yield code[match.end():at - 1]


def _declarations(body):
    """Heads of the declarations of one namespace body, without what stands in their braces."""
    depth = 0
    head = ""
    for char in body:
        if char == "{":
            if depth == 0:
                yield head + "{"
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                head = ""
        elif depth == 0:
            if char == ";":
                if head.strip():
                    yield head + ";"
                head = ""
            else:
                head += char


def _parameter_types(text):
    text = re.sub(r"\s*=\s*[^,]+", "", text)
    return re.sub(r"\b\w+\s*(,|$)", r"\1", " ".join(text.split()))


def _key(declaration):
    """What must be unique: a name, with its parameters if it is a function's. None: repeatable."""
    text = " ".join(re.sub(r"(?m)^\s*#.*$", "", declaration).split())
    text = re.sub(r"^template\s*<[^>]*>\s*", "", text)
    match = re.match(r"(?:struct|class|enum class|enum|union)\s+(\w+)", text)
    if match and "(" not in text:
        return (match.group(1),) if text.endswith("{") else None
    if text.startswith(("using ", "namespace ", "}")):
        return None
    match = re.match(r"[^(=]*?\b(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)[^=]*[{;]$", text)
    if match:
        return match.group(1), _parameter_types(match.group(2))
    match = re.match(r"(?:\w+\s+)*[\w:<>,&*\s]+?\b(\w+)\s*(?:\[[^\]]*\]\s*)*[={;]", text)
    return (match.group(1),) if match else None


def private_names(text):
    """The names of a source's anonymous namespaces, as a set of comparable keys."""
    found = set()
    for body in _bodies(code_only(text)):
        found |= {_key(declaration) for declaration in _declarations(body)}
    return found - {None}
