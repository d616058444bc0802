"""The plugins that come with onetake: a name for a row's `use`, and where the plugin lives.

A table of strings, so that looking at a composition imports none of them.
"""

from __future__ import annotations

ENTRY_POINT_GROUP = "onetake.plugins"

BUILTIN = {
    "acp": "onetake.app.plugins:acp",
    "agent": "onetake.app.plugins:agent",
    "anthropic-messages": "onetake.app.plugins:anthropic_messages",
    "bash": "onetake.toolkit.bash.plugin:bash",
    "delegation": "onetake.toolkit.delegation.plugin:delegation",
    "openai-chat": "onetake.app.plugins:openai_chat",
    "openai-responses": "onetake.app.plugins:openai_responses",
    "prompt": "onetake.app.plugins:prompt",
    "replay": "onetake.replay.plugin:replay",
    "session-store": "onetake.app.plugins:session_store",
}
