//! Writing bencode.

/// Appends bencode to a buffer. Who writes a dictionary keeps its keys in order.
///
/// ```
/// use headworks_tracker_wire::bencode::Writer;
/// let mut out = Vec::new();
/// Writer::new(&mut out).begin_dict().bytes(b"interval").int(1800).end();
/// assert_eq!(out, b"d8:intervali1800ee");
/// ```
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Writer { out }
    }

    /// An integer.
    pub fn int(&mut self, number: i64) -> &mut Self {
        self.out.push(b'i');
        if number < 0 {
            self.out.push(b'-');
        }
        self.digits(number.unsigned_abs());
        self.out.push(b'e');
        self
    }

    /// A string.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.string_of(bytes.len()).extend_from_slice(bytes);
        self
    }

    /// The head of a string of `length` bytes, which the caller appends to the buffer.
    pub fn string_of(&mut self, length: usize) -> &mut Vec<u8> {
        self.digits(length as u64);
        self.out.push(b':');
        self.out
    }

    /// Opens a dictionary: a string and a value in turn, then [`end`](Self::end).
    pub fn begin_dict(&mut self) -> &mut Self {
        self.out.push(b'd');
        self
    }

    /// Opens a list.
    pub fn begin_list(&mut self) -> &mut Self {
        self.out.push(b'l');
        self
    }

    /// Closes what was opened last.
    pub fn end(&mut self) -> &mut Self {
        self.out.push(b'e');
        self
    }

    fn digits(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.out.extend_from_slice(&digits[at..]);
    }
}
