//! Bytes with their place, so that an error can say where, and reading can go on behind it.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, ErrorKind, Read};
use std::rc::Rc;

use serde::Serialize;

/// A place in the input. Lines and columns count from one, columns in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Bytes before it.
    pub byte: u64,
    /// Its line.
    pub line: u64,
    /// Its column.
    pub column: u64,
}

/// The longest element that is read: a span, or what stands between two.
const LONGEST_ELEMENT: u64 = 16 << 20;

/// The input, byte by byte as serde_json takes it.
pub(super) struct Source<R> {
    input: BufReader<R>,
    mark: Rc<Mark>,
    back: Option<u8>, // read, and given back
    last: u8,
    failed: Option<io::Error>,
}

/// How far reading has come; shared with those who read.
pub(super) struct Mark {
    place: Cell<Place>,
    before: Cell<Place>, // of the last byte
    element: Cell<u64>,  // where the present element began
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Self {
        let start = Cell::new(Place { byte: 0, line: 1, column: 1 });
        let mark = Mark { place: start.clone(), before: start, element: Cell::new(0) };
        Self { input: BufReader::with_capacity(1 << 16, input), mark: Rc::new(mark), back: None, last: 0, failed: None }
    }

    pub(super) fn mark(&self) -> Rc<Mark> {
        Rc::clone(&self.mark)
    }

    /// What the system said when the input could not be read. Whatever came before counts.
    pub(super) fn failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// The next byte that is none of `skipped`, left in place.
    pub(super) fn peek_behind(&mut self, skipped: impl Fn(u8) -> bool) -> Option<u8> {
        while let Some(byte) = self.byte() {
            if !skipped(byte) {
                self.give_back();
                return Some(byte);
            }
            self.mark.element_ended();
        }
        None
    }

    /// To the next line that may begin a value: after an error, what was broken is left behind. Where the last byte read
    /// is the first of such a line, it is that line: the value before was cut off. But not if it is where the broken value
    /// began, at `began`: that would be read for ever.
    pub(super) fn skip_to_next_line(&mut self, began: Place) {
        self.mark.element_ended();
        let before = self.mark.before.get();
        if before.column == 1 && before.byte > began.byte && matches!(self.last, b'{' | b'[') && self.back.is_none() {
            self.give_back();
            return;
        }
        while let Some(byte) = self.byte() {
            if self.mark.before.get().column == 1 && matches!(byte, b'{' | b'[') {
                self.give_back();
                return;
            }
            self.mark.element_ended();
        }
    }

    /// The first bytes, left in place.
    pub(super) fn beginning(&mut self) -> Vec<u8> {
        use std::io::BufRead as _;
        match self.input.fill_buf() {
            Ok(bytes) => bytes.iter().copied().take(4).collect(),
            Err(error) => {
                self.failed = Some(error);
                Vec::new()
            }
        }
    }

    fn give_back(&mut self) {
        self.back = Some(self.last);
        self.mark.place.set(self.mark.before.get());
    }

    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        loop {
            match self.read(&mut byte) {
                Ok(0) => return None,
                Ok(_) => return Some(byte[0]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = Some(error);
                    return None;
                }
            }
        }
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(slot) = buffer.first_mut() else { return Ok(0) };
        let mark = &self.mark;
        let place = mark.place.get();
        if place.byte.saturating_sub(mark.element.get()) > LONGEST_ELEMENT {
            let text = format!("one element is longer than {} MiB", LONGEST_ELEMENT >> 20);
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        *slot = match self.back.take() {
            Some(byte) => byte,
            None => {
                let mut byte = [0];
                match self.input.read(&mut byte) {
                    Ok(0) => return Ok(0),
                    Ok(_) => byte[0],
                    Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                    Err(error) => {
                        let told = io::Error::new(error.kind(), error.to_string());
                        self.failed = Some(error);
                        return Err(told);
                    }
                }
            }
        };
        self.last = *slot;
        mark.before.set(place);
        mark.place.set(match *slot {
            b'\n' => Place { byte: place.byte + 1, line: place.line + 1, column: 1 },
            _ => Place { byte: place.byte + 1, column: place.column + 1, ..place },
        });
        Ok(1)
    }
}

impl Mark {
    /// The place of the next byte.
    pub(super) fn place(&self) -> Place {
        self.place.get()
    }

    /// The place of the last byte that was read.
    pub(super) fn last(&self) -> Place {
        self.before.get()
    }

    /// An element is complete; the next one has the whole bound.
    pub(super) fn element_ended(&self) {
        self.element.set(self.place.get().byte);
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {} (byte {})", self.line, self.column, self.byte)
    }
}
