//! An encoder that appends to a buffer.

/// Appends bencode to a buffer. The caller must write dictionary keys in sorted order.
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
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Writer { out }
    }

    /// Writes an integer.
    pub fn int(&mut self, number: i64) -> &mut Self {
        self.out.push(b'i');
        if number < 0 {
            self.out.push(b'-');
        }
        self.digits(number.unsigned_abs());
        self.out.push(b'e');
        self
    }

    /// Writes a byte string.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.string_header(bytes.len()).extend_from_slice(bytes);
        self
    }

    /// Writes the length of a byte string and returns the buffer, to which the caller appends
    /// `length` bytes.
    pub fn string_header(&mut self, length: usize) -> &mut Vec<u8> {
        self.digits(length as u64);
        self.out.push(b':');
        self.out
    }

    /// Opens a dictionary: alternating keys and values follow, then [`end`](Self::end).
    pub fn begin_dict(&mut self) -> &mut Self {
        self.out.push(b'd');
        self
    }

    /// Opens a list.
    pub fn begin_list(&mut self) -> &mut Self {
        self.out.push(b'l');
        self
    }

    /// Closes the innermost list or dictionary.
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
