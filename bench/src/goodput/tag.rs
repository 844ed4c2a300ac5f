//! What a request carries for the bench's own bookkeeping. No system under test reads it.

use http::{HeaderMap, HeaderValue};

/// The field, also as metadata of gRPC.
pub(crate) const FIELD: &str = "x-bench";

/// The most tiers a request passes.
pub(crate) const TIERS: usize = 3;

/// One request: who it is, until when its answer is of use, and how much work each tier has with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) id: u32,
    /// By the wall clock of this machine, in microseconds.
    pub(crate) until_us: u64,
    pub(crate) work_us: [u32; TIERS],
}

impl Tag {
    /// As the field says it.
    pub(crate) fn written(&self) -> HeaderValue {
        let [a, b, c] = self.work_us;
        let text = format!("{},{},{a},{b},{c}", self.id, self.until_us);
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")) // digits and commas
    }

    /// What the field says.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        Self::parsed(headers.get(FIELD)?.to_str().ok()?)
    }

    fn parsed(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let mut next = || parts.next()?.parse::<u64>().ok();
        let (id, until_us) = (u32::try_from(next()?).ok()?, next()?);
        let mut work_us = [0; TIERS];
        for work in &mut work_us {
            *work = u32::try_from(next()?).ok()?;
        }
        Some(Self { id, until_us, work_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_as_it_was_written() {
        let tag = Tag { id: 7, until_us: 1_764_500_000_000_000, work_us: [20_000, 18, 0] };
        let mut headers = HeaderMap::new();
        headers.insert(FIELD, tag.written());
        assert_eq!(Tag::read(&headers), Some(tag));
        assert_eq!(Tag::parsed("7,12"), None);
    }
}
