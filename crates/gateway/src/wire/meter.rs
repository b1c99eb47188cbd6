//! Meter: reads the usage report of a response while its bytes pass.
//!
//! One reader serves JSON responses and event streams: it searches for the key `"usage"` followed
//! by an object with token counts, where both APIs have it: in the response itself, and in an event
//! also in its object `response` or `message`. Inside a JSON string the quotes are escaped, so
//! generated text cannot pretend to be a report; nor can other objects, such as the arguments of a
//! tool or the `metadata` of the request, which responses repeat. Parsing whole responses would
//! cost too much; see `docs/adr/0007`.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use smallvec::SmallVec;

const USAGE_KEY: &[u8] = b"\"usage\"";
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(USAGE_KEY));
/// Last event of OpenAI's streams, which has no content.
const DONE: &[u8] = b"[DONE]";
static EVENT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"data:"));
/// End of a key.
static KEY_END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\":"));
/// Keys of generated text in the responses and events of both APIs.
const TEXT_KEYS: [&[u8]; 9] = [
    b"\"content",
    b"\"text",
    b"\"delta",
    b"\"arguments",
    b"\"partial_json",
    b"\"thinking",
    b"\"reasoning_content",
    b"\"reasoning",
    b"\"refusal",
];
/// Objects of an event that contain a report.
const REPORTING: [&[u8]; 2] = [b"\"response\"", b"\"message\""];
/// Bytes before an object by which it is recognised as one of these.
const TAIL: usize = 16;
/// Approximate bytes of text per token.
const BYTES_PER_TOKEN: u64 = 4;
/// Largest usage object. A larger one is not a report.
const MAX_USAGE_OBJECT: usize = 4096;

/// Largest token count that is believed. No model reads or writes more for one request. A report
/// beyond it is ignored and the estimate stays: otherwise a single response could put the shared
/// token bucket into debt forever.
const MAX_TOKENS: u64 = 1 << 22;

/// Token counts, as far as they were reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: Option<u64>,
    /// Tokens of the response.
    pub output: Option<u64>,
}

impl Usage {
    /// Sum of both counts; `None` if neither is known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        match (self.input, self.output) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        }
    }

    /// Applies a later report. Counts that it omits stay, and none becomes smaller: what was
    /// reported has been generated.
    fn update(&mut self, later: Usage) {
        self.input = later.input.max(self.input);
        self.output = later.output.max(self.output);
    }
}

/// Names of the counts in both APIs.
#[derive(Deserialize)]
struct Reported {
    prompt_tokens: Option<u64>,
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

impl Reported {
    fn usage(&self) -> Option<Usage> {
        // Anthropic reports tokens written to the prompt cache separately from `input_tokens`.
        let cached = self.cache_creation_input_tokens.unwrap_or(0);
        let input = self
            .input_tokens
            .map(|tokens| tokens.saturating_add(cached));
        let input = self.prompt_tokens.or(input);
        let output = self.completion_tokens.or(self.output_tokens);
        let rest = |total: u64| total.saturating_sub(input.unwrap_or(0));
        let output = output.or(self.total_tokens.map(rest));
        let believed = |tokens: &u64| *tokens <= MAX_TOKENS;
        let (input, output) = (input.filter(believed), output.filter(believed));
        (input.is_some() || output.is_some()).then_some(Usage { input, output })
    }
}

/// Result of reading a candidate.
enum Candidate {
    Usage(Usage, usize),
    Nothing,
    /// The object continues beyond the available bytes.
    More,
}

/// Reads the value after a `"usage"` at the start of `bytes`.
fn read_at(bytes: &[u8]) -> Candidate {
    let rest = &bytes[USAGE_KEY.len()..];
    let mut at = 0;
    for expected in [b':', b'{'] {
        while rest.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        match rest.get(at) {
            None if rest.len() < MAX_USAGE_OBJECT => return Candidate::More,
            Some(byte) if *byte == expected => at += 1,
            _ => return Candidate::Nothing,
        }
    }
    let object = &rest[at - 1..];
    let mut values = serde_json::Deserializer::from_slice(object).into_iter::<Reported>();
    match values.next() {
        Some(Ok(reported)) => {
            let end = USAGE_KEY.len() + at - 1 + values.byte_offset();
            match reported.usage() {
                Some(usage) => Candidate::Usage(usage, end),
                None => Candidate::Nothing,
            }
        }
        Some(Err(error)) if error.is_eof() && object.len() < MAX_USAGE_OBJECT => Candidate::More,
        _ => Candidate::Nothing,
    }
}

/// Returns the usage that a response reports, which is not a stream.
///
/// ```
/// let answer = br#"{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}"#;
/// let usage = headworks_gateway::wire::find_usage(answer).unwrap();
/// assert_eq!(usage.total(), Some(12));
/// ```
#[must_use]
pub fn find_usage(bytes: &[u8]) -> Option<Usage> {
    let mut meter = Meter::default();
    meter.feed(bytes);
    meter.reported()
}

/// Depth of JSON objects and arrays, at the end of the bytes seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Nesting {
    depth: u32,
    in_string: bool,
    after_backslash: bool,
    after_newline: bool,
    /// Whether the object at depth 2 is one of [`REPORTING`].
    is_reporting: bool,
    /// The last bytes.
    before: [u8; TAIL],
}

impl Nesting {
    fn advance(&mut self, all: &[u8]) {
        let mut bytes = all;
        while !bytes.is_empty()
            && let Some(rest) = match self.in_string {
                true => self.skip_string(bytes),
                false => self.skip_structure(bytes, all),
            }
        {
            bytes = rest;
        }
        self.before = self.tail_of(all);
    }

    /// The last bytes up to the end of `bytes`.
    fn tail_of(&self, bytes: &[u8]) -> [u8; TAIL] {
        let tail = &bytes[bytes.len().saturating_sub(TAIL)..];
        let mut before = self.before;
        before.rotate_left(tail.len());
        before[TAIL - tail.len()..].copy_from_slice(tail);
        before
    }

    /// Whether `bytes` end with the key of an object that contains a report.
    fn names_reporting(&self, bytes: &[u8]) -> bool {
        let before = self.tail_of(bytes);
        let key = before.trim_ascii_end().strip_suffix(b":");
        let key = key.map(<[u8]>::trim_ascii_end);
        key.is_some_and(|key| REPORTING.iter().any(|name| key.ends_with(name)))
    }

    /// Whether a report may be here.
    fn may_report(&self, events: bool) -> bool {
        match self.depth {
            2 => events && self.is_reporting,
            depth => depth < 2,
        }
    }

    /// Returns the bytes after the string, if it ends here. A line feed ends it too: it is not
    /// valid in a string, so that a quote in a comment of a stream concerns its line only.
    fn skip_string<'b>(&mut self, mut bytes: &'b [u8]) -> Option<&'b [u8]> {
        if std::mem::take(&mut self.after_backslash) {
            bytes = bytes.get(1..).unwrap_or_default();
        }
        loop {
            let at = memchr::memchr3(b'"', b'\\', b'\n', bytes)?;
            if bytes[at] != b'\\' {
                self.in_string = false;
                self.after_newline = bytes[at] == b'\n';
                return Some(&bytes[at + 1..]);
            }
            match bytes.get(at + 2..) {
                Some(rest) => bytes = rest,
                None => {
                    self.after_backslash = true;
                    return None;
                }
            }
        }
    }

    /// Returns the bytes after the quote that begins a string, if there is one. `bytes` are at the
    /// end of `all`.
    fn skip_structure<'b>(&mut self, bytes: &'b [u8], all: &[u8]) -> Option<&'b [u8]> {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    (self.in_string, self.after_newline) = (true, false);
                    return Some(&bytes[at + 1..]);
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth == 2 {
                        let seen = &all[..all.len() - bytes.len() + at];
                        self.is_reporting = *byte == b'{' && self.names_reporting(seen);
                    }
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                // An empty line separates events, which are JSON by themselves.
                b'\n' if self.after_newline => self.depth = 0,
                b'\n' => self.after_newline = true,
                b'\r' => {}
                _ => self.after_newline = false,
            }
        }
        None
    }
}

/// Position relative to a string of generated text, at the end of the bytes seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Text {
    #[default]
    Outside,
    Inside,
    /// After a backslash.
    Escaped,
}

/// Counts of what was generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Events of a stream, without the one that only ends it.
    events: u64,
    /// Strings of generated text that are not empty. In a stream this is about one per token.
    texts: u64,
    /// Bytes of generated text.
    written: u64,
}

/// Incremental reader of a response. Its memory is bounded.
#[derive(Debug, Default)]
pub struct Meter {
    /// Whether the response is a stream of events.
    events: bool,
    usage: Option<Usage>,
    counts: Counts,
    /// The counts at the last usage report, which covers them.
    reported: Counts,
    /// Whether the last bytes were inside generated text.
    text: Text,
    /// Bytes of generated text before the current string.
    text_start: u64,
    /// Unfinished candidate at the end of the bytes seen.
    carry: Vec<u8>,
    /// The depth before the carried bytes.
    nesting: Nesting,
    /// The last bytes, to recognize the end of an event.
    last: [u8; 4],
    seen: u64,
}

impl Meter {
    /// A meter for a stream of events. The default one is for any other response.
    #[must_use]
    pub fn of_events() -> Meter {
        Meter {
            events: true,
            ..Meter::default()
        }
    }

    /// Reads the next bytes of the response.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut ends = SmallVec::new();
        if self.carry.is_empty() {
            let keep = self.scan(bytes, &mut ends);
            self.carry.extend_from_slice(&bytes[keep..]);
        } else {
            let mut joined = std::mem::take(&mut self.carry);
            let carried = joined.len();
            joined.extend_from_slice(bytes);
            let keep = self.scan(&joined, &mut ends);
            joined.drain(..keep);
            self.carry = joined;
            // A report that ended in the carried bytes was read with them.
            ends.iter_mut()
                .for_each(|end| *end = end.saturating_sub(carried));
        }
        let mut from = 0;
        for end in ends {
            self.count(&bytes[from..end]);
            self.reported = self.counts;
            from = end;
        }
        self.count(&bytes[from..]);
    }

    fn count(&mut self, bytes: &[u8]) {
        self.count_events(bytes);
        self.count_text(bytes);
        self.seen += bytes.len() as u64;
    }

    /// Reads every report in `bytes` and adds the index of its end to `ends`. Returns the index
    /// from which on the bytes are needed again.
    fn scan(&mut self, bytes: &[u8], ends: &mut SmallVec<[usize; 2]>) -> usize {
        let (mut from, mut nested) = (0, 0);
        while let Some(found) = USAGE.find(&bytes[from..]) {
            let at = from + found;
            self.nesting.advance(&bytes[nested..at]);
            nested = at;
            match read_at(&bytes[at..]) {
                _ if !self.nesting.may_report(self.events) => from = at + USAGE_KEY.len(),
                Candidate::Usage(usage, end) => {
                    self.usage.get_or_insert_default().update(usage);
                    from = at + end;
                    ends.push(from);
                }
                Candidate::Nothing => from = at + USAGE_KEY.len(),
                Candidate::More => return at,
            }
        }
        // The key may be cut at the end of the bytes.
        let tail = bytes.len().saturating_sub(USAGE_KEY.len() - 1).max(from);
        let keep = match memchr::memchr(USAGE_KEY[0], &bytes[tail..]) {
            Some(quote) => tail + quote,
            None => bytes.len(),
        };
        self.nesting.advance(&bytes[nested..keep]);
        keep
    }

    fn count_events(&mut self, bytes: &[u8]) {
        for at in EVENT.find_iter(bytes) {
            let line_starts = match at {
                0 => self.seen == 0 || self.last[3] == b'\n',
                _ => bytes[at - 1] == b'\n',
            };
            let content = bytes[at + EVENT.needle().len()..].trim_ascii_start();
            let is_last = content.starts_with(DONE);
            self.counts.events += u64::from(line_starts && !is_last);
        }
        let tail = &bytes[bytes.len().saturating_sub(self.last.len())..];
        self.last.rotate_left(tail.len());
        let kept = self.last.len() - tail.len();
        self.last[kept..].copy_from_slice(tail);
    }

    /// Counts generated text, for responses that end without a report. A key that is split between
    /// two pieces is missed, which costs one event of hundreds and saves a buffer.
    fn count_text(&mut self, bytes: &[u8]) {
        let mut from = self.skip_text(bytes, 0);
        while let Some(found) = KEY_END.find(&bytes[from..]) {
            let key_end = from + found;
            from = key_end + 2;
            while bytes.get(from) == Some(&b' ') {
                from += 1;
            }
            let key = &bytes[..key_end];
            if bytes.get(from) == Some(&b'"') && TEXT_KEYS.iter().any(|name| key.ends_with(name)) {
                (self.text, self.text_start) = (Text::Inside, self.counts.written);
                from = self.skip_text(bytes, from + 1);
            }
        }
    }

    /// Counts the text that begins at `from` and returns its end. An escape counts as the bytes
    /// after its backslash.
    fn skip_text(&mut self, bytes: &[u8], mut from: usize) -> usize {
        while self.text != Text::Outside && from < bytes.len() {
            if self.text == Text::Escaped {
                (self.text, from) = (Text::Inside, from + 1);
                self.counts.written += 1;
                continue;
            }
            let Some(length) = memchr::memchr2(b'"', b'\\', &bytes[from..]) else {
                self.counts.written += (bytes.len() - from) as u64;
                return bytes.len();
            };
            self.counts.written += length as u64;
            from += length + 1;
            if bytes[from - 1] == b'\\' {
                self.text = Text::Escaped;
                continue;
            }
            self.text = Text::Outside;
            self.counts.texts += u64::from(self.counts.written > self.text_start);
        }
        from
    }

    /// Tokens of the text so far, as far as it tells: its bytes say about how many they are.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.counts.written.div_ceil(BYTES_PER_TOKEN)
    }

    /// Whether any text was generated so far.
    #[must_use]
    pub fn has_text(&self) -> bool {
        self.counts.written > 0
    }

    /// Tokens that a stream has brought so far: those of its last report, and about one for each
    /// piece of text since then.
    #[must_use]
    pub fn streamed(&self) -> u64 {
        let (now, before) = (self.counts, self.reported);
        let unfinished = self.text != Text::Outside && now.written > self.text_start;
        let texts = now.texts + u64::from(unfinished) - before.texts;
        let since = texts.max((now.written - before.written).div_ceil(BYTES_PER_TOKEN));
        match self.usage.and_then(|usage| usage.output) {
            Some(output) => output.saturating_add(since),
            // Events of an unknown format count as a token each.
            None if since == 0 => now.events,
            None => since,
        }
    }

    /// Usage reported so far.
    #[must_use]
    pub fn reported(&self) -> Option<Usage> {
        self.usage
    }

    /// Whether an event of the gateway's own may be inserted here.
    #[must_use]
    pub fn is_between_events(&self) -> bool {
        self.seen == 0 || self.last.ends_with(b"\n\n") || self.last == *b"\r\n\r\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANTHROPIC: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,",
        "\"cache_creation_input_tokens\":5,\"output_tokens\":1}}}\n\n",
        "event: content_block_delta\ndata: {\"delta\":{\"text\":\"\\\"usage\\\":{\\\"output_tokens\\\":9}\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n",
    );

    fn of_events(text: &str) -> Option<Usage> {
        let mut meter = Meter::of_events();
        meter.feed(text.as_bytes());
        meter.reported()
    }

    #[test]
    fn the_last_word_of_a_stream_counts() {
        let usage = of_events(ANTHROPIC).unwrap();
        assert_eq!((usage.input, usage.output), (Some(30), Some(15)));
    }

    #[test]
    fn metadata_that_a_response_repeats_is_no_report() {
        let zero = r#""metadata":{"usage":{"input_tokens":0,"output_tokens":0}}"#;
        let report = r#""usage":{"prompt_tokens":9,"completion_tokens":80}"#;
        for answer in [
            format!("{{{report},{zero}}}"),
            format!("{{{zero},{report}}}"),
            format!(r#"{{{report},"message":{{"usage":{{"output_tokens":0}}}}}}"#),
            format!(r#"{{{report},"usage":{{"input_tokens":0,"output_tokens":0}}}}"#),
        ] {
            let usage = find_usage(answer.as_bytes()).unwrap();
            assert_eq!(usage.total(), Some(89), "{answer}");
            let streamed = of_events(&format!("data: {answer}\n\n")).unwrap();
            assert_eq!(streamed.total(), Some(89), "{answer}");
        }
        // Repeated in every event, it does not hide the text before it.
        let mut meter = Meter::of_events();
        let event = format!("data: {{\"delta\":{{\"content\":\"word\"}},{zero}}}\n\n");
        (0..50).for_each(|_| meter.feed(event.as_bytes()));
        assert_eq!((meter.reported(), meter.streamed()), (None, 50));
    }

    #[test]
    fn null_and_other_usages_are_none() {
        assert_eq!(find_usage(br#"{"usage":null}"#), None);
        assert_eq!(find_usage(br#"{"input":{"usage":{"cpu":3}}}"#), None);
        assert_eq!(find_usage(br#"{"usage":{"prompt_tokens":-3}}"#), None);
        let absurd = br#"{"usage":{"prompt_tokens":3,"completion_tokens":18446744073709551615}}"#;
        let believed = find_usage(absurd).unwrap();
        assert_eq!((believed.input, believed.output), (Some(3), None));
        let only_total = find_usage(br#"{"usage":{"prompt_tokens":3,"total_tokens":10}}"#).unwrap();
        assert_eq!(only_total.output, Some(7));
    }

    #[test]
    fn objects_of_the_request_are_not_reports() {
        let echoed = r#"{"type":"response.created","response":{"id":"r","tools":[{"parameters":
            {"usage":{"input_tokens":0,"output_tokens":0}}}],"usage":null}}"#;
        assert_eq!(of_events(&format!("data: {echoed}")), None);
        let tool_use = r#"{"usage":{"input_tokens":900,"output_tokens":80},"content":[{"type":
            "tool_use","input":{"usage":{"input_tokens":0,"output_tokens":0}}}]}"#;
        let usage = find_usage(tool_use.as_bytes()).unwrap();
        assert_eq!((usage.input, usage.output), (Some(900), Some(80)));
        let completed = r#"data: {"response":{"output":[{"text":"a \\\"{[ b"}],"usage":{"input_tokens":5,"output_tokens":6}}}"#;
        let usage = of_events(completed).unwrap();
        assert_eq!((usage.input, usage.output), (Some(5), Some(6)));
        let after_comment = concat!(
            ": it's a \"comment {[{\n\n",
            "data: {\"usage\":{\"prompt_tokens\":7}}\r\n\r\n"
        );
        assert_eq!(of_events(after_comment).unwrap().input, Some(7));
    }

    #[test]
    fn a_report_is_found_however_small_the_pieces_are() {
        let response = r#"{"text":"a \\ \" {[ \"x\" b","usage":{"prompt_tokens":7}}"#;
        let mut meter = Meter::default();
        for byte in response.as_bytes() {
            meter.feed(std::slice::from_ref(byte));
            meter.feed(b"");
        }
        assert_eq!(meter.reported().unwrap().input, Some(7));
    }

    #[test]
    fn reasoning_and_refusals_are_text() {
        let mut meter = Meter::default();
        for key in ["reasoning", "refusal", "reasoning_content"] {
            let event = format!("data: {{\"choices\":[{{\"delta\":{{\"{key}\":\"word\"}}}}]}}\n\n");
            meter.feed(event.as_bytes());
        }
        assert_eq!(meter.counts.texts, 3);
    }

    #[test]
    fn written_text_is_counted_wherever_it_is_cut() {
        let answer = concat!(
            r#"data: {"id":"long-identifier","choices":[{"delta":{"role":"assistant","content":"12\"45\\7"}}]}"#,
            r#"data: {"delta":{"type":"text_delta","text": "89"},"other":"\"text\":\"no\""}"#,
        );
        let mut whole = Meter::default();
        whole.feed(answer.as_bytes());
        assert_eq!(whole.counts.written, 9);
        assert_eq!(whole.written(), 3);
        let text = answer.find("12").unwrap();
        for cut in text..text + 10 {
            let mut meter = Meter::default();
            meter.feed(&answer.as_bytes()[..cut]);
            meter.feed(&answer.as_bytes()[cut..]);
            assert_eq!(meter.counts.written, 9, "cut at {cut}");
        }
    }

    #[test]
    fn events_are_counted_and_their_ends_known() {
        let mut meter = Meter::default();
        assert!(meter.is_between_events());
        meter.feed(b"data: {\"a\": \"data: no\"}\n");
        assert!(!meter.is_between_events());
        meter.feed(b"\n");
        assert!(meter.is_between_events());
        meter.feed(b"data: [DONE]\r\n");
        assert!(!meter.is_between_events());
        meter.feed(b"\r");
        meter.feed(b"\n");
        assert!(meter.is_between_events());
        assert_eq!(meter.streamed(), 1, "the last event has no content");
    }

    #[test]
    fn memory_is_bounded() {
        let mut meter = Meter::default();
        meter.feed(b"\"usage\": {\"a\": \"");
        for _ in 0..1000 {
            meter.feed(&[b'x'; 1000]);
        }
        assert!(meter.carry.len() <= MAX_USAGE_OBJECT + 1000);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(cuts in proptest::collection::vec(0..ANTHROPIC.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (mut meter, mut from) = (Meter::of_events(), 0);
            for cut in cuts.into_iter().chain([ANTHROPIC.len()]) {
                meter.feed(&ANTHROPIC.as_bytes()[from..cut]);
                from = cut;
            }
            prop_assert_eq!(meter.reported(), of_events(ANTHROPIC));
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = find_usage(&bytes);
        }
    }
}
