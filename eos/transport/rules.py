"""Names that a cluster's operators prescribe to its clients."""

from __future__ import annotations

from dataclasses import dataclass

from eos.errors import ConfigurationError, Unauthorized

PREFIX_HINT = (
    f"{Unauthorized.default_hint} A namespace with subscriptionAuthMode=Prefix admits only "
    "subscriptions that begin with the name of the role: set subscription_prefix "
    "(subscriptionPrefix, --subscription-prefix) to it."
)
"""The hint for a refused subscription. Readers have a subscription, too."""


@dataclass(frozen=True)
class ClusterRules:
    """Names that the cluster's operators prescribe.

    Args:
        listener_name: the advertised listener that this client can reach, if the brokers have
            several (``advertisedListeners``); None: the internal one.
        subscription_prefix: the prefix of every subscription that the user has not named; for
            namespaces with ``subscriptionAuthMode=Prefix``, the role's name.

    Raises:
        ConfigurationError: a name is blank or not printable.
    """

    listener_name: str | None = None
    subscription_prefix: str | None = None

    def __post_init__(self) -> None:
        for name in ("listener_name", "subscription_prefix"):
            value = getattr(self, name)
            if value is not None and not (value.strip() and value.isprintable()):
                raise ConfigurationError(f"{name} must be a name, not {value!r}.")

    def subscription(self, name: str) -> str:
        """Return ``name`` with the prefix and a dash in front, unless it has them already."""
        if self.subscription_prefix is None:
            return name
        prefix = f"{self.subscription_prefix.removesuffix('-')}-"
        return name if name.startswith(prefix) else prefix + name
