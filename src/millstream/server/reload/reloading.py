"""Reloading: reads the configuration anew and says in the log what came of it."""

import logging

from millstream.server.options.config_error import ConfigError
from millstream.server.options.loaded import Load
from millstream.server.options.options import Options
from millstream.server.reload.reload import Reloadable, ReloadPlan, carry_out, plan

log = logging.getLogger(__name__)


class Reloading:
    """Keeps the options in force; a file that has become wrong changes nothing."""

    def __init__(self, options: Options, load: Load | None, parts: Reloadable) -> None:
        self.options = options
        self._load = load
        self._parts = parts

    def reload(self) -> None:
        """Take over what changed and can change."""
        if self._load is None:
            log.warning("Reload: there is no configuration file to read")
            return
        try:
            loaded = self._load()
            planned = plan(self.options, loaded.options)
            carry_out(planned, self._parts)
        except (ConfigError, OSError) as error:
            log.error("Failed to reload server configuration, going on as before: %s", error)
            return
        except Exception:
            # Half a reload is bad; a server that ends because of one is worse.
            log.exception("Failed to reload server configuration")
            return
        self.options = planned.options
        self._tell(planned)

    @staticmethod
    def _tell(planned: ReloadPlan) -> None:
        for setting in planned.applied:
            log.info("Reloaded: %s", setting)
        for refusal in planned.refused:
            log.warning("Reload: '%s' stays as it is: %s", refusal.setting, refusal.reason)
        if planned.dropped_users:
            log.info("Reloaded: dropped users=%s", ", ".join(sorted(planned.dropped_users)))
        log.info("Reloaded server configuration")
