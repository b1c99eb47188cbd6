//! The Lua scripts.

use redis::Script;

/// The scripts, each with the shared functions before it.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) tick: Script,
    pub(super) publish: Script,
    pub(super) facts: Script,
    pub(super) remove: Script,
    pub(super) status: Script,
}

impl Scripts {
    pub(super) fn new() -> Scripts {
        let script = |body| Script::new(&format!("{}{body}", include_str!("common.lua")));
        Scripts {
            tick: script(include_str!("tick.lua")),
            publish: script(include_str!("publish.lua")),
            facts: script(include_str!("facts.lua")),
            remove: script(include_str!("remove.lua")),
            status: script(include_str!("status.lua")),
        }
    }
}
