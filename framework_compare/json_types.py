"""Names for the types of JSON; both sides of the process boundary use them. Standard library."""

from typing import Any, Dict, Mapping

JSON = Any  # a value as json.loads returns it
Document = Mapping[str, Any]  # an object of JSON, or settings by name, as they are read
Fields = Dict[str, Any]  # one that is made
