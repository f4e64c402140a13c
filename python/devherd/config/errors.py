"""pydantic's errors as lines for users: the key path, what is wrong, and a suggestion."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from devherd.config.model import Config
from devherd.errors import UsageError


class ConfigError(UsageError):
    """A configuration that cannot be used. `problems` has one line for each error: key path and what is wrong."""

    def __init__(self, source: str, problems: list[str]) -> None:
        others = len(problems) - 1
        cure = (
            f"correct it and the other errors ({others}) that `devherd check-config` lists" if others else "correct it"
        )
        super().__init__(f"bad configuration in {source}", problems[0], cure)
        self.source = source
        self.problems = problems


def explain(error: ValidationError, origins: Mapping[str, str], model: type[BaseModel] = Config) -> Iterator[str]:
    """One line an error in what is to be that `model`. `origins` says which keys came from elsewhere."""
    for detail in error.errors(include_url=False):
        path = _key_path(detail["loc"])
        if detail["type"] == "extra_forbidden":
            yield f"{path}: unknown key{_suggestion(detail['loc'], model)}"
            continue
        message = detail["msg"].removeprefix("Value error, ")
        origin = origins.get(str(detail["loc"][0])) if len(detail["loc"]) == 1 else None
        said = message[:1].lower() + message[1:] if message.startswith("Input ") else message
        yield f"{origin or path or 'the file'}: {said}"


def _key_path(location: tuple[int | str, ...]) -> str:
    """`resources[0].match` for a location of pydantic's."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def _suggestion(location: tuple[int | str, ...], model: Any) -> str:
    for part in location[:-1]:
        if isinstance(part, str):
            model = _field_model(model, part)
    names = [field.alias or name for name, field in model.model_fields.items()] if model else []
    close = difflib.get_close_matches(str(location[-1]), names, n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; valid keys: {', '.join(f'`{name}`' for name in names)}"


def _field_model(model: Any, name: str) -> Any:
    """The section behind a field, be it the field's own type or the type of its list's items."""
    field = model.model_fields.get(name) if model else None
    candidates = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
