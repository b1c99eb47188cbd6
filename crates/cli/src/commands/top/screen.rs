//! The terminal screen: tabs, the lines of one panel, and key bindings.

use std::time::Instant;

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Tabs};
use ratatui::{DefaultTerminal, Frame};

use super::{EVERY, Seen, text};

/// The selected tab and scroll position.
#[derive(Default)]
struct Place {
    /// The tab; zero is the overview.
    tab: usize,
    scroll: u16,
}

/// Draws until `q` is pressed; `look` polls for new data.
pub(super) fn show(seen: &mut Seen, look: impl Fn(&mut Seen)) -> Result<()> {
    let mut terminal = ratatui::try_init()
        .context("not a terminal; use `headworks top --once` for text output")?;
    let outcome = follow(&mut terminal, seen, look);
    ratatui::restore();
    outcome
}

fn follow(terminal: &mut DefaultTerminal, seen: &mut Seen, look: impl Fn(&mut Seen)) -> Result<()> {
    let mut place = Place::default();
    let mut next = Instant::now() + EVERY;
    loop {
        terminal.draw(|frame| draw(frame, seen, &place))?;
        if event::poll(next.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && !place.press(key.code, seen.list.panels.len() + 1)
            {
                return Ok(());
            }
        } else {
            look(seen);
            next = Instant::now() + EVERY;
        }
    }
}

impl Place {
    /// Handles a key; returns whether to continue.
    fn press(&mut self, key: KeyCode, tabs: usize) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Right | KeyCode::Tab | KeyCode::Char('l') => self.turn((self.tab + 1) % tabs),
            KeyCode::Left | KeyCode::BackTab | KeyCode::Char('h') => {
                self.turn((self.tab + tabs - 1) % tabs);
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(20),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(20),
            _ => {}
        }
        true
    }

    fn turn(&mut self, tab: usize) {
        *self = Place { tab, scroll: 0 };
    }
}

fn draw(frame: &mut Frame<'_>, seen: &Seen, place: &Place) {
    let rows = [
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
    let names = seen
        .list
        .panels
        .iter()
        .map(|panel| panel.snapshot.title.clone());
    let names = std::iter::once("Overview".to_owned()).chain(names);
    let marked = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(
        Tabs::new(names).select(place.tab).highlight_style(marked),
        top,
    );

    let panels = &seen.list.panels;
    let lines = match place.tab.checked_sub(1).and_then(|at| panels.get(at)) {
        Some(panel) => text::panel(panel, &seen.history, seen.time),
        None => text::overview(panels, &seen.history, seen.time),
    };
    let deepest = lines.len().saturating_sub(middle.height.into());
    let scroll = usize::from(place.scroll).min(deepest) as u16;
    let lines: Vec<_> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), middle);

    let keys = "q quit  ←/→ applications  ↑/↓ scroll";
    let words = match &seen.problem {
        Some(problem) => format!("▲ disconnected: {problem}"),
        None => keys.to_owned(),
    };
    frame.render_widget(Line::from(words), bottom);
}
