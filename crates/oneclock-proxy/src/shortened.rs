//! What a caller chose, at no more than so many bytes: it decides how long a path is.

/// At most so many bytes of it, between characters; what is shortened says so.
pub(crate) fn shortened(text: &str, most: usize) -> Box<str> {
    if text.len() <= most {
        return text.into();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}…", text.get(..end).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_shortened_between_characters() {
        assert_eq!(&*shortened("/orders/7", 9), "/orders/7");
        assert_eq!(&*shortened("/orders/7", 8), "/orders/…");
        assert_eq!(&*shortened("/größe", 5), "/grö…");
        assert_eq!(&*shortened("/größe", 4), "/gr…");
        assert_eq!(&*shortened("/", 0), "…");
    }
}
