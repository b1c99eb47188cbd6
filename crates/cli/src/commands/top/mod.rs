//! `headworks top`: a running instance in the terminal.

mod format;
mod screen;
mod text;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use headworks_console::History;
use headworks_service::exit::Exit;
use headworks_service::panel::PanelList;

use crate::arguments::Common;
use crate::commands::instance::Instance;
use crate::report;

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct TopCommand {
    /// Address of the instance, such as http://127.0.0.1:7070/?token=TOKEN, as `headworks up`
    /// printed it.
    address: Option<String>,
    /// Print the current state once, as text.
    #[arg(long)]
    once: bool,
}

/// The data received so far.
#[derive(Default)]
struct TopState {
    list: PanelList,
    history: History,
    time: f64,
    /// Error of the last poll.
    problem: Option<String>,
}

impl TopState {
    fn poll(&mut self, runtime: &tokio::runtime::Runtime, client: &Instance) {
        match runtime.block_on(client.panels()) {
            Ok(list) => self.update(list),
            Err(error) => self.problem = Some(format!("{error:#}")),
        }
    }

    fn update(&mut self, list: PanelList) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.time = since.unwrap_or_default().as_secs_f64();
        for panel in &list.panels {
            self.history.record(self.time, panel);
        }
        self.list = list;
        self.problem = None;
    }
}

pub(crate) fn run(command: &TopCommand, common: &Common) -> Result<Exit> {
    let client = Instance::find(command.address.as_deref(), common)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // The first poll must succeed; later failures are shown on the screen.
    let mut state = TopState::default();
    state.update(runtime.block_on(client.panels())?);
    if command.once {
        let lines = state.list.panels.iter();
        let lines = lines.flat_map(|panel| text::panel(panel, &state.history, state.time));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        report::data(&text)?;
    } else {
        screen::show(&mut state, |state| state.poll(&runtime, &client))?;
    }
    Ok(Exit::Done)
}
