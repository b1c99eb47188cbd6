//! Request summary: the part of a request body that scheduling needs. Read in one pass; only the
//! name of the model is kept.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::endpoint::Endpoint;

/// Longest name of a model. It is kept in the history, so its length is bounded.
const LONGEST_NAME: usize = 512;
/// Most models beside `model` that are kept to be checked.
const MAX_OTHER_MODELS: usize = 64;
/// Approximate bytes of text per token.
const CHARS_PER_TOKEN: u64 = 4;
/// Approximate cost of an image or a file. The length of its base64 says nothing about it.
const TOKENS_PER_PICTURE: u64 = 1000;
/// Cap on the expected response. Charged in full, a huge number of choices could block all other
/// requests for hours.
const LARGEST_ANSWER: u64 = 131_072;

/// The part of a request that scheduling needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestSummary {
    /// The model.
    pub model: String,
    /// Whether the response is to be streamed.
    pub stream: bool,
    /// Estimated tokens of the prompt.
    pub prompt: u64,
    /// Number of choices that are generated.
    pub choices: u64,
    /// Most tokens of the response, for all choices together.
    pub max_output: Option<u64>,
    /// Models that the upstream may use instead.
    pub other_models: OtherModels,
}

/// Models that an upstream may use instead of `model`: every text in `models` (OpenRouter) and in
/// `fallbacks` and the like (LiteLLM).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherModels {
    /// Their names.
    pub names: Vec<String>,
    /// Whether there are more, or names that are too long for a model.
    pub has_more: bool,
}

impl OtherModels {
    fn add(&mut self, name: &str) {
        if self.names.len() < MAX_OTHER_MODELS && name.len() <= LONGEST_NAME {
            self.names.push(name.to_owned());
        } else {
            self.has_more = true;
        }
    }
}

impl RequestSummary {
    /// Estimated cost: the prompt, and the response with `expected` tokens for each choice, as far
    /// as the request's own limits allow.
    #[must_use]
    pub fn estimate(&self, endpoint: Endpoint, expected: u64) -> u64 {
        let expected = expected.saturating_mul(self.choices).min(LARGEST_ANSWER);
        let most = self.upper_bound(endpoint, expected);
        self.prompt.saturating_add(expected).min(most).max(1)
    }

    /// Most tokens that the request may cost, by its own limits; `unlimited` for the response if it
    /// sets none.
    #[must_use]
    pub fn upper_bound(&self, endpoint: Endpoint, unlimited: u64) -> u64 {
        let output = match endpoint.generates() {
            true => self.max_output.unwrap_or(unlimited),
            false => 0,
        };
        self.prompt.saturating_add(output)
    }
}

/// Reads a request body.
///
/// # Errors
/// A message for the client if the body is not a JSON object, names no model, or has a scheduling
/// key twice or in another case.
///
/// ```
/// let body = br#"{"model": "m", "max_tokens": 50,
///     "messages": [{"role": "user", "content": "hello there, you"}]}"#;
/// let summary = headworks_gateway::wire::read_summary(body).unwrap();
/// assert_eq!((summary.model.as_str(), summary.max_output), ("m", Some(50)));
/// assert_eq!(summary.prompt, 5); // "user" and sixteen characters
/// ```
pub fn read_summary(body: &[u8]) -> Result<RequestSummary, String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut rejected = None;
    let read = reader.deserialize_map(SummaryVisitor(&mut rejected));
    // Data after the object is rejected, because another parser might read it.
    let summary = read.and_then(|summary| reader.end().map(|()| summary));
    let summary = summary.map_err(|cause| {
        rejected.unwrap_or_else(|| format!("the body is not a JSON object: {cause}"))
    })?;
    if summary.model.is_empty() {
        return Err("the body names no `model`".to_owned());
    }
    Ok(summary)
}

/// Keys that decide whether and how a request is scheduled.
///
/// The gateway and the upstream must read the same value. JSON leaves open which of two equal keys
/// counts, and some parsers ignore case. A body in which one of these keys occurs twice or in
/// another case is therefore rejected.
const SCHEDULING_KEYS: [&str; 7] = [
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "best_of",
];

/// Role of a field of the request.
enum Field {
    /// A key of [`SCHEDULING_KEYS`], by its index.
    Scheduling(usize),
    /// A scheduling key in another case: the name as written, and the index of the key.
    OtherCase(String, usize),
    /// The prompt of a completion. A list of prompts is answered one by one.
    Prompt,
    /// A field with models that the upstream may use instead.
    OtherModels,
    /// A field that the model does not read.
    Unread,
    /// Any other field. It counts as a part of the prompt.
    Read(Media),
}

impl Field {
    fn named(name: &str) -> Field {
        let position =
            |same: fn(&str, &str) -> bool| SCHEDULING_KEYS.iter().position(|key| same(key, name));
        if let Some(key) = position(|key, name| key == name) {
            return Field::Scheduling(key);
        }
        match name {
            "metadata" | "user" | "stop" | "safety_identifier" | "prompt_cache_key" => {
                Field::Unread
            }
            _ if name.eq_ignore_ascii_case("prompt") => Field::Prompt,
            // A parser may ignore case, and more models never permit more.
            _ if is_other_models(name) => Field::OtherModels,
            _ if name.eq_ignore_ascii_case("messages") => Field::Read(Media::InContent),
            _ if name.eq_ignore_ascii_case("input") => Field::Read(Media::Here),
            _ => match position(differ_by_case) {
                Some(key) => Field::OtherCase(name.to_owned(), key),
                None => Field::Read(Media::Nowhere),
            },
        }
    }
}

/// Whether a field has the names of models: `models`, `fallbacks`, `context_window_fallbacks` and
/// others.
fn is_other_models(name: &str) -> bool {
    let start = name.len().saturating_sub("fallbacks".len());
    let end = &name.as_bytes()[start..];
    name.eq_ignore_ascii_case("models") || end.eq_ignore_ascii_case(b"fallbacks")
}

/// Whether a parser that ignores case takes one name for the other.
fn differ_by_case(one: &str, other: &str) -> bool {
    // Folding goes through upper case, which also covers the long s and the Kelvin sign.
    let fold = |c: char| c.to_uppercase().flat_map(char::to_lowercase);
    one.chars().flat_map(fold).eq(other.chars().flat_map(fold))
}

/// Deserializes a name by passing it to a function, without allocating.
struct NameSeed<F>(F);

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for NameSeed<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> T> Visitor<'_> for NameSeed<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<T, E> {
        Ok((self.0)(name))
    }
}

/// Visitor for a request. If the request is rejected for another reason than its JSON, the message
/// is left in the field.
struct SummaryVisitor<'a>(&'a mut Option<String>);

impl SummaryVisitor<'_> {
    fn reject<T, E: serde::de::Error>(self, words: String) -> Result<T, E> {
        *self.0 = Some(words);
        Err(E::custom("refused"))
    }
}

impl<'de> Visitor<'de> for SummaryVisitor<'_> {
    type Value = RequestSummary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RequestSummary, A::Error> {
        let (mut summary, mut weight, mut choices) =
            (RequestSummary::default(), Content::default(), 1);
        let (mut seen, mut prompts) = ([false; SCHEDULING_KEYS.len()], 1);
        while let Some(field) = map.next_key_seed(NameSeed(Field::named))? {
            match field {
                Field::Scheduling(key) if std::mem::replace(&mut seen[key], true) => {
                    let key = SCHEDULING_KEYS[key];
                    return self.reject(format!("`{key}` occurs twice in the body: send it once"));
                }
                Field::Scheduling(key) => match SCHEDULING_KEYS[key] {
                    "model" => match map.next_value_seed(ScalarSeed)? {
                        Scalar::Text(model) => summary.model = model,
                        Scalar::LongText => {
                            let words = format!("`model` is longer than {LONGEST_NAME} bytes");
                            return self.reject(words);
                        }
                        _ => {}
                    },
                    "stream" => {
                        let stream = map.next_value_seed(ScalarSeed)?;
                        summary.stream = matches!(stream, Scalar::Flag(true));
                    }
                    // An upstream may generate more choices than it returns.
                    "n" | "best_of" => {
                        let count = map.next_value_seed(ScalarSeed)?.count();
                        choices = choices.max(count.unwrap_or(1));
                    }
                    // Which limit applies is up to the upstream, so the largest counts.
                    _ => {
                        let limit = map.next_value_seed(ScalarSeed)?.count();
                        summary.max_output = summary.max_output.max(limit);
                    }
                },
                Field::OtherCase(written, key) => {
                    let key = SCHEDULING_KEYS[key];
                    let words = format!("the body has the key `{written}`: write it as `{key}`");
                    return self.reject(words);
                }
                Field::Prompt => {
                    let seed = ContentSeed(&mut weight, Position::Text, Media::Nowhere);
                    if let Shape::List(entries) = map.next_value_seed(seed)? {
                        prompts = prompts.max(entries);
                    }
                }
                Field::OtherModels => {
                    let other = &mut summary.other_models;
                    map.next_value_seed(ModelsSeed(other, &mut weight))?;
                }
                Field::Unread => drop(map.next_value::<IgnoredAny>()?),
                Field::Read(media) => {
                    map.next_value_seed(ContentSeed(&mut weight, Position::Text, media))?;
                }
            }
        }
        summary.prompt = weight.tokens();
        choices = choices.saturating_mul(prompts);
        summary.max_output = summary.max_output.map(|most| most.saturating_mul(choices));
        summary.choices = choices;
        Ok(summary)
    }
}

/// Value of a scheduling key. Lists, objects and long texts are skipped and not kept: a body could
/// otherwise take many times its size.
enum Scalar {
    Flag(bool),
    Whole(u64),
    Decimal(f64),
    Text(String),
    LongText,
    Other,
}

impl Scalar {
    /// A count. Decimal numbers and strings are read as well, because some upstreams accept them.
    fn count(&self) -> Option<u64> {
        let number: f64 = match self {
            Scalar::Whole(number) => return Some(*number),
            Scalar::Decimal(number) => *number,
            Scalar::Text(text) => text.trim().parse().ok()?,
            Scalar::Flag(_) | Scalar::LongText | Scalar::Other => return None,
        };
        // The conversion saturates at the largest integer.
        (number >= 0.0).then(|| number.ceil() as u64)
    }
}

/// Collects every text in a value as the name of a model. It counts as a part of the prompt too.
struct ModelsSeed<'a>(&'a mut OtherModels, &'a mut Content);

impl<'de> DeserializeSeed<'de> for ModelsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ModelsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.add(text);
        self.1.chars += text.len() as u64;
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(ModelsSeed(self.0, self.1))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(ModelsSeed(self.0, self.1))?;
        }
        Ok(())
    }
}

struct ScalarSeed;

impl<'de> DeserializeSeed<'de> for ScalarSeed {
    type Value = Scalar;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Scalar, E> {
        Ok(Scalar::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Whole(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Decimal(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Decimal(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(match text.len() <= LONGEST_NAME {
            true => Scalar::Text(text.to_owned()),
            false => Scalar::LongText,
        })
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}

/// Amount of content in a value.
#[derive(Default)]
struct Content {
    chars: u64,
    tokens: u64,
    /// Images and files as base64: their number and their length.
    encoded: Encoded,
    /// Whether the last `type` is "text".
    is_text: bool,
}

#[derive(Clone, Copy, Default)]
struct Encoded {
    count: u64,
    bytes: u64,
}

impl Content {
    fn tokens(&self) -> u64 {
        self.chars
            .div_ceil(CHARS_PER_TOKEN)
            .saturating_add(self.tokens)
            .saturating_add(self.encoded.count.saturating_mul(TOKENS_PER_PICTURE))
    }

    /// Counts base64 found since `before` as text.
    fn count_as_text(&mut self, before: Encoded) {
        self.chars += self.encoded.bytes - before.bytes;
        self.encoded = before;
    }
}

/// Where a field may have images and files. Elsewhere, as in the schema of a tool, a key `url` or
/// `data` means nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    Nowhere,
    /// In the `content` of its objects.
    InContent,
    Here,
}

/// Position of a value, as far as it decides the meaning of a string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Text that the model reads.
    Text,
    /// The `type` of the enclosing object.
    Type,
    /// A URL, possibly a `data:` URL.
    Url,
    /// Base64, with or without a `data:` prefix: Anthropic's sources, OpenAI's audio and files.
    Data,
}

impl Position {
    /// The position of a field of an object, and where it has media in turn.
    fn named(name: &str, media: Media) -> (Position, Media) {
        let position = match name {
            "content" if media == Media::InContent => return (Position::Text, Media::Here),
            _ if media != Media::Here => return (Position::Text, Media::Nowhere),
            "type" => Position::Type,
            "url" | "image_url" | "file_url" => Position::Url,
            "data" | "file_data" => Position::Data,
            _ => Position::Text,
        };
        (position, Media::Here)
    }

    /// Whether a string at this position is the address of an image or file that the upstream will
    /// fetch.
    fn links_to(self, text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        self == Position::Url && scheme.is_some_and(|scheme| scheme.len() < 16)
    }

    /// Whether a string at this position is an encoded image or file. Anywhere else, and with any
    /// other content, the model reads it as text, whatever its prefix. Otherwise a prompt could be
    /// disguised as a cheap image.
    fn holds_encoded(self, text: &str) -> bool {
        // A media type is short.
        let url = text.strip_prefix("data:").and_then(|rest| {
            let (media_type, data) = rest.split_once(',')?;
            (media_type.len() < 256 && media_type.ends_with(";base64")).then_some(data)
        });
        match self {
            Position::Text | Position::Type => false,
            Position::Url => url.is_some_and(is_base64),
            Position::Data => is_base64(url.unwrap_or(text)),
        }
    }
}

fn is_base64(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_\r\n".contains(&byte);
    text.bytes().all(digit)
}

/// Shape of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Text,
    /// Number of entries that are texts or lists.
    List(u64),
    Other,
}

/// Adds up the content of a value.
struct ContentSeed<'a>(&'a mut Content, Position, Media);

impl<'de> DeserializeSeed<'de> for ContentSeed<'_> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ContentSeed<'_> {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<Shape, E> {
        let ContentSeed(weight, position, _) = self;
        let bytes = text.len() as u64;
        if position.links_to(text) {
            weight.tokens = weight.tokens.saturating_add(TOKENS_PER_PICTURE);
        }
        if position.holds_encoded(text) {
            weight.encoded.count += 1;
            weight.encoded.bytes += bytes;
        } else {
            weight.chars += bytes;
        }
        if position == Position::Type {
            weight.is_text = text == "text";
        }
        Ok(Shape::Text)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        // A prompt may be a list of token numbers.
        self.0.tokens += 1;
        Ok(Shape::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut entries = 0;
        while let Some(shape) = seq.next_element_seed(ContentSeed(self.0, self.1, self.2))? {
            entries += u64::from(shape != Shape::Other);
        }
        Ok(Shape::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        let (before, mut is_text) = (self.0.encoded, false);
        let named = |name: &str| Position::named(name, self.2);
        while let Some((position, media)) = map.next_key_seed(NameSeed(named))? {
            self.0.is_text = false;
            map.next_value_seed(ContentSeed(self.0, position, media))?;
            is_text |= position == Position::Type && self.0.is_text;
        }
        // The source of a document may be plain text, all of whose characters may be valid base64.
        if is_text {
            self.0.count_as_text(before);
        }
        Ok(Shape::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary(text: &str) -> RequestSummary {
        read_summary(text.as_bytes()).unwrap()
    }

    #[test]
    fn every_way_to_bound_the_answer() {
        assert_eq!(
            summary(r#"{"model":"m","max_tokens":7}"#).max_output,
            Some(7)
        );
        assert_eq!(
            summary(r#"{"model":"m","n":3,"max_completion_tokens":7}"#).max_output,
            Some(21)
        );
        assert_eq!(
            summary(r#"{"model":"m","max_output_tokens":9,"max_tokens":null}"#).max_output,
            Some(9)
        );
        assert_eq!(summary(r#"{"model":"m","max_tokens":-4}"#).max_output, None);
    }

    #[test]
    fn bounds_on_the_answer_are_understood_however_they_are_written() {
        let most = |fields: &str| summary(&format!(r#"{{"model":"m",{fields}}}"#)).max_output;
        assert_eq!(most(r#""max_tokens":"700""#), Some(700));
        assert_eq!(most(r#""max_tokens":7.5"#), Some(8));
        assert_eq!(most(r#""max_tokens":1e5"#), Some(100_000));
        assert_eq!(most(r#""max_tokens":" 1e5 ""#), Some(100_000));
        assert_eq!(most(r#""max_tokens":1e300"#), Some(u64::MAX));
        for nothing in ["-4", "-4.0", "null", "\"many\"", "\"NaN\"", "[5]"] {
            assert_eq!(
                most(&format!(r#""max_tokens":{nothing}"#)),
                None,
                "{nothing}"
            );
        }
        assert_eq!(
            most(r#""max_tokens":5,"max_completion_tokens":900"#),
            Some(900)
        );
        assert_eq!(
            most(r#""max_completion_tokens":900,"max_tokens":5"#),
            Some(900)
        );
        assert_eq!(most(r#""max_tokens":10,"n":2,"best_of":5"#), Some(50));
        assert_eq!(most(r#""max_tokens":10,"n":"3","best_of":null"#), Some(30));
        let twice = read_summary(br#"{"model":"m","best_of":1,"best_of":9}"#);
        assert!(twice.unwrap_err().contains("`best_of` occurs twice"));
    }

    #[test]
    fn pictures_are_not_measured_by_their_base64() {
        let base64 = "A".repeat(100_000);
        let openai = format!(
            r#"{{"model":"m","messages":[{{"content":[{{"image_url":{{"url":"data:image/png;base64,{base64}"}}}}]}}]}}"#
        );
        let anthropic = format!(
            r#"{{"model":"m","messages":[{{"content":[{{"source":{{"data":"{base64}"}}}}]}}]}}"#
        );
        assert_eq!(summary(&openai).prompt, TOKENS_PER_PICTURE);
        assert_eq!(summary(&anthropic).prompt, TOKENS_PER_PICTURE);
    }

    #[test]
    fn a_linked_picture_counts_as_one() {
        let prompt = |content: &str| {
            summary(&format!(
                r#"{{"model":"m","messages":[{{"content":[{content}]}}]}}"#
            ))
            .prompt
        };
        for linked in [
            r#"{"type":"image_url","image_url":{"url":"https://a.example/1.png"}}"#,
            r#"{"type":"input_image","image_url":"https://a.example/1.png"}"#,
            r#"{"type":"image","source":{"type":"url","url":"https://a.example/1.png"}}"#,
            r#"{"type":"input_file","file_url":"gs://bucket/1.pdf"}"#,
        ] {
            let tokens = prompt(linked);
            assert!((1000..1020).contains(&tokens), "{tokens} for {linked}");
        }
        assert!(prompt(r#"{"type":"text","text":"https://a.example/1.png"}"#) < 20);
    }

    #[test]
    fn a_link_outside_of_the_messages_is_no_picture() {
        for field in [
            r#""tools":[{"url":"https://a.example","parameters":{"data":"QUJD"}}]"#,
            r#""web_search":{"url":"https://a.example"}"#,
            r#""messages":[{"role":"user","url":"https://a.example","data":"QUJD"}]"#,
            r#""messages":[{"tool_calls":[{"url":"https://a.example"}]}]"#,
            r#""prompt":{"url":"https://a.example"}"#,
        ] {
            let read = summary(&format!(r#"{{"model":"m",{field}}}"#));
            assert!(read.prompt < 20, "{} for {field}", read.prompt);
        }
        let input = r#"{"model":"m","input":[{"type":"input_image","image_url":"https://a.example/1.png"}]}"#;
        assert!(summary(input).prompt >= TOKENS_PER_PICTURE);
    }

    #[test]
    fn text_that_begins_like_a_data_url_is_text() {
        let long = "word ".repeat(8000);
        let base64 = "QUJD".repeat(10_000);
        let text = |content: serde_json::Value| {
            let message = serde_json::json!({"content": content});
            summary(&serde_json::json!({"model": "m", "messages": [message]}).to_string()).prompt
        };
        assert_eq!(text("data: short".into()), 3);
        assert_eq!(text(format!("data:{long}").into()), 10_002);
        let encoded = format!("data:image/png;base64,{base64}");
        assert!(
            text(encoded.clone().into()) > 10_000,
            "the model reads it as text"
        );
        let document = |kind: &str, data: &str| {
            let source = serde_json::json!({"data": data, "type": kind});
            text(serde_json::json!([{"type": "document", "source": source}]))
        };
        assert!(document("text", &long) >= 10_000);
        assert!(
            document("text", &base64) >= 10_000,
            "plain text without spaces"
        );
        assert!(document("base64", &long) >= 10_000, "not base64");
        let picture = document("base64", &base64);
        assert!((1000..1010).contains(&picture), "{picture}");
        let url = |url: &str| text(serde_json::json!([{"image_url": {"url": url}}]));
        assert!(url(&format!("data:{long}")) >= 10_000);
        assert_eq!(url(&encoded), TOKENS_PER_PICTURE);
    }

    #[test]
    fn scheduling_keys_occur_once_and_as_they_are_written() {
        for key in [
            "model",
            "stream",
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "n",
        ] {
            let body = |other: &str| format!(r#"{{"model":"m","{key}":"m","{other}":"m"}}"#);
            let twice = read_summary(body(key).replacen(r#""model":"m","#, "", 1).as_bytes());
            assert_eq!(
                twice.unwrap_err(),
                format!("`{key}` occurs twice in the body: send it once")
            );
            let upper = read_summary(
                body(&key.to_uppercase())
                    .replacen(r#""model":"m","#, "", 1)
                    .as_bytes(),
            );
            let expected = format!(
                "the body has the key `{}`: write it as `{key}`",
                key.to_uppercase()
            );
            assert_eq!(upper.unwrap_err(), expected);
        }
        // Some parsers also fold the Kelvin sign and the long s.
        for other in ["max_to\\u212aens", "\\u017ftream", "\\u004dODEL"] {
            let body = format!(r#"{{"model":"m","{other}":5}}"#);
            assert!(
                read_summary(body.as_bytes())
                    .unwrap_err()
                    .contains("write it as"),
                "{other}"
            );
        }
        assert!(read_summary(br#"{"model":"m","Models":[],"user":"a","user":"b"}"#).is_ok());
        let nested = br#"{"model":"m","metadata":{"model":1,"MODEL":2},"tools":[{"model":1}]}"#;
        assert!(
            read_summary(nested).is_ok(),
            "only the request's own keys count"
        );
    }

    #[test]
    fn every_prompt_of_a_list_is_answered() {
        let read = |prompt: &str| {
            let fields = r#""model":"m","max_tokens":7,"n":2"#;
            let summary = summary(&format!(r#"{{{fields},"prompt":{prompt}}}"#));
            (summary.choices, summary.max_output)
        };
        assert_eq!(read(r#"["a","b","c"]"#), (6, Some(42)));
        assert_eq!(read("[[1,2],[3]]"), (4, Some(28)));
        for one in ["\"a\"", "[\"a\"]", "[1,2,3]", "[]", "null"] {
            assert_eq!(read(one), (2, Some(14)), "{one}");
        }
        let inputs = r#"{"model":"m","input":["a","b"]}"#;
        assert_eq!(summary(inputs).choices, 1, "embeddings generate nothing");
    }

    #[test]
    fn every_model_that_may_be_used_is_found() {
        let names = |fields: &str| {
            let other = summary(&format!(r#"{{"model":"m",{fields}}}"#)).other_models;
            (other.names.join(" "), other.has_more)
        };
        for (fields, expected) in [
            (r#""models":["a","b"]"#, "a b"),
            (r#""Models":"a""#, "a"),
            (r#""fallbacks":[{"m":["a"]},{"model":"b","n":1}]"#, "a b"),
            (
                r#""context_window_fallbacks":[{"m":["a"]}],"models":["b"],"models":[null]"#,
                "a b",
            ),
            (r#""tools":[{"models":["x"]}]"#, ""),
        ] {
            assert_eq!(names(fields), (expected.to_owned(), false), "{fields}");
        }
        let long = format!(r#""fallbacks":["{}"]"#, "x".repeat(LONGEST_NAME + 1));
        assert_eq!(names(&long), (String::new(), true));
        let many = vec!["\"x\""; MAX_OTHER_MODELS + 1].join(",");
        assert!(names(&format!(r#""models":[{many}]"#)).1);
    }

    #[test]
    fn one_request_cannot_claim_the_rate_of_hours() {
        let huge = summary(r#"{"model":"m","max_tokens":18446744073709551615,"n":9}"#);
        assert_eq!(huge.estimate(Endpoint::Chat, 100), 900);
        assert_eq!(huge.estimate(Endpoint::Chat, u64::MAX), LARGEST_ANSWER);
        assert_eq!(huge.upper_bound(Endpoint::Chat, 0), u64::MAX);
        let small = summary(r#"{"model":"m","max_tokens":7,"n":2}"#);
        assert_eq!(small.estimate(Endpoint::Chat, 100), 14);
        assert_eq!(small.estimate(Endpoint::Embeddings, 100), 1);
    }

    #[test]
    fn a_prompt_of_tokens_counts_them() {
        assert_eq!(summary(r#"{"model":"m","input":[[1,2,3],[4]]}"#).prompt, 4);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(
            read_summary(b"[]")
                .unwrap_err()
                .contains("not a JSON object")
        );
        assert!(read_summary(b"{}").unwrap_err().contains("`model`"));
        assert!(read_summary(b"{\"model\":3}").is_err());
        assert!(read_summary(b"{\"model\":\"m\"} x").is_err());
    }

    #[test]
    fn a_long_name_is_refused() {
        let body = format!(r#"{{"model":"{}"}}"#, "m".repeat(LONGEST_NAME + 1));
        assert!(
            read_summary(body.as_bytes())
                .unwrap_err()
                .contains("longer than")
        );
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = format!(
            r#"{{"model":"m","a":{}{}}}"#,
            "[".repeat(5000),
            "]".repeat(5000)
        );
        assert!(read_summary(deep.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_summary(&bytes);
        }

        #[test]
        fn any_text_weighs_a_quarter_of_its_bytes(content in ".{0,200}") {
            let body = serde_json::json!({"model": "m", "prompt": &content}).to_string();
            prop_assert_eq!(summary(&body).prompt, (content.len() as u64).div_ceil(4));
        }
    }
}
