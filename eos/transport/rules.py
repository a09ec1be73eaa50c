"""What the operators of a cluster dictate to its clients."""

from __future__ import annotations

from dataclasses import dataclass

from eos.errors import ConfigurationError, Unauthorized

PREFIX_HINT = (
    f"{Unauthorized.default_hint} A namespace with subscriptionAuthMode=Prefix admits only "
    "subscriptions that begin with the name of the role: set subscription_prefix "
    "(subscriptionPrefix, --subscription-prefix) to it."
)
"""For who was refused a subscription. Readers have one as well."""


@dataclass(frozen=True)
class ClusterRules:
    """Names that are not ours to choose.

    Args:
        listener_name: the advertised listener of the brokers that is reached from here, where they
            have several (``advertisedListeners``); None: the brokers' internal one.
        subscription_prefix: what every subscription begins with that is not named by the user, for
            namespaces with ``subscriptionAuthMode=Prefix``: the role's name.

    Raises:
        ConfigurationError: one is blank, or not printable.
    """

    listener_name: str | None = None
    subscription_prefix: str | None = None

    def __post_init__(self) -> None:
        for name in ("listener_name", "subscription_prefix"):
            value = getattr(self, name)
            if value is not None and not (value.strip() and value.isprintable()):
                raise ConfigurationError(f"{name}={value!r}: it must be a name.")

    def subscription(self, name: str) -> str:
        """``name`` as a subscription is called there: behind the prefix, once, and a dash."""
        if self.subscription_prefix is None:
            return name
        prefix = f"{self.subscription_prefix.removesuffix('-')}-"
        return name if name.startswith(prefix) else prefix + name
