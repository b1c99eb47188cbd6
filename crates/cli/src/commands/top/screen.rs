//! The terminal screen: tabs, the lines of one panel, and key bindings.

use std::time::Instant;

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Tabs};
use ratatui::{DefaultTerminal, Frame};

use super::{POLL_INTERVAL, TopState, text};

/// The selected tab and scroll position.
#[derive(Default)]
struct ScreenPosition {
    /// The tab; zero is the overview.
    tab: usize,
    scroll: u16,
}

/// Draws until `q` is pressed; `poll` polls for new data.
pub(super) fn show(state: &mut TopState, poll: impl Fn(&mut TopState)) -> Result<()> {
    let mut terminal = ratatui::try_init()
        .context("not a terminal; use `headworks top --once` for text output")?;
    let outcome = run(&mut terminal, state, poll);
    ratatui::restore();
    outcome
}

fn run(
    terminal: &mut DefaultTerminal,
    state: &mut TopState,
    poll: impl Fn(&mut TopState),
) -> Result<()> {
    let mut position = ScreenPosition::default();
    let mut next = Instant::now() + POLL_INTERVAL;
    loop {
        terminal.draw(|frame| draw(frame, state, &position))?;
        if event::poll(next.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && !position.press(key.code, state.list.panels.len() + 1)
            {
                return Ok(());
            }
        } else {
            poll(state);
            next = Instant::now() + POLL_INTERVAL;
        }
    }
}

impl ScreenPosition {
    /// Handles a key; returns whether to continue.
    fn press(&mut self, key: KeyCode, tabs: usize) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Right | KeyCode::Tab | KeyCode::Char('l') => {
                self.select_tab((self.tab + 1) % tabs);
            }
            KeyCode::Left | KeyCode::BackTab | KeyCode::Char('h') => {
                self.select_tab((self.tab + tabs - 1) % tabs);
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(20),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(20),
            _ => {}
        }
        true
    }

    fn select_tab(&mut self, tab: usize) {
        *self = ScreenPosition { tab, scroll: 0 };
    }
}

fn draw(frame: &mut Frame<'_>, state: &TopState, position: &ScreenPosition) {
    let rows = [
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
    let names = state
        .list
        .panels
        .iter()
        .map(|panel| panel.snapshot.title.clone());
    let names = std::iter::once("Overview".to_owned()).chain(names);
    let marked = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(
        Tabs::new(names)
            .select(position.tab)
            .highlight_style(marked),
        top,
    );

    let panels = &state.list.panels;
    let lines = match position.tab.checked_sub(1).and_then(|at| panels.get(at)) {
        Some(panel) => text::panel(panel, &state.history, state.time),
        None => text::overview(panels, &state.history, state.time),
    };
    let deepest = lines.len().saturating_sub(middle.height.into());
    let scroll = usize::from(position.scroll).min(deepest) as u16;
    let lines: Vec<_> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), middle);

    let keys = "q quit  ←/→ applications  ↑/↓ scroll";
    let words = match &state.problem {
        Some(problem) => format!("▲ disconnected: {problem}"),
        None => keys.to_owned(),
    };
    frame.render_widget(Line::from(words), bottom);
}
