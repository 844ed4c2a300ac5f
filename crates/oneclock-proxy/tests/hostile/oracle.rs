//! Reads what an upstream got, in the one way that is beyond doubt.
//!
//! Strict on purpose, beyond what RFC 9112 asks of a server: whatever one upstream could read in another way than the next is
//! an error here. Only what a careful sender writes has a meaning.

/// A request as an upstream read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// All of it came.
    pub(crate) whole: bool,
    /// How many bytes it took.
    pub(crate) length: usize,
}

/// Where a body ends.
enum Framing {
    Length(usize),
    Chunks,
}

impl Seen {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The requests in `bytes`, the last of which may not be whole.
///
/// # Errors
/// Why they could be read in more than one way.
pub(crate) fn requests(mut bytes: &[u8]) -> Result<Vec<Seen>, String> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let before = bytes.len();
        let Some(end) = find(bytes, b"\r\n\r\n") else {
            let head = String::from_utf8_lossy(bytes).into_owned();
            let none = Vec::new();
            all.push(Seen {
                method: String::new(),
                target: head,
                fields: none,
                body: Vec::new(),
                whole: false,
                length: before,
            });
            break;
        };
        let (mut seen, framing) = head(&bytes[..end])?;
        bytes = &bytes[end + 4..];
        match framing {
            Framing::Length(length) => {
                let here = length.min(bytes.len());
                seen.body = bytes[..here].to_vec();
                seen.whole = here == length;
                bytes = &bytes[here..];
            }
            Framing::Chunks => bytes = chunks(bytes, &mut seen)?,
        }
        seen.length = before - bytes.len();
        all.push(seen);
    }
    Ok(all)
}

fn head(bytes: &[u8]) -> Result<(Seen, Framing), String> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while let Some(end) = find(rest, b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines.push(rest);
    for line in &lines {
        if line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(format!("a CR, a LF or a NUL inside a line: {}", line.escape_ascii()));
        }
    }
    let words: Vec<&[u8]> = lines[0].split(|byte| *byte == b' ').collect();
    let [method, target, b"HTTP/1.1"] = words[..] else {
        return Err(format!("no request line: {}", lines[0].escape_ascii()));
    };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err(format!("no method: {}", lines[0].escape_ascii()));
    }
    if !(target.starts_with(b"/") || (method == b"OPTIONS" && target == b"*"))
        || !target.iter().all(|byte| byte.is_ascii_graphic())
    {
        return Err(format!("no path: {}", lines[0].escape_ascii()));
    }
    let mut fields = Vec::new();
    for line in &lines[1..] {
        fields.push(field(line)?);
    }
    let framing = framing(&fields)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        Seen { method: text(method), target: text(target), fields, body: Vec::new(), whole: false, length: 0 },
        framing,
    ))
}

fn field(line: &[u8]) -> Result<(String, String), String> {
    let colon = line.iter().position(|byte| *byte == b':').filter(|colon| *colon > 0);
    let colon = colon.ok_or_else(|| format!("no field: {}", line.escape_ascii()))?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if !name.iter().all(|byte| is_token(*byte)) {
        return Err(format!("no name of a field: {}", line.escape_ascii()));
    }
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(format!("a control character in a value: {}", line.escape_ascii()));
    }
    Ok((String::from_utf8_lossy(name).to_ascii_lowercase(), String::from_utf8_lossy(value).into_owned()))
}

fn framing(fields: &[(String, String)]) -> Result<Framing, String> {
    let all = |name: &str| -> Vec<&str> {
        fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    };
    let host = all("host");
    if host.len() != 1 || host[0].is_empty() || host[0].contains([' ', '@', '/', ',']) {
        return Err(format!("not one host: {host:?}"));
    }
    // What speaks of one hop has nothing to say to the next.
    for name in ["connection", "upgrade", "http2-settings", "keep-alive", "proxy-connection"] {
        if let Some(value) = all(name).first()
            && !value.eq_ignore_ascii_case("upgrade")
            && !value.eq_ignore_ascii_case("websocket")
        {
            return Err(format!("a field of another hop: {name}: {value}"));
        }
    }
    match (all("content-length")[..].as_ref(), all("transfer-encoding")[..].as_ref()) {
        ([], []) => Ok(Framing::Length(0)),
        ([length], []) if (1..=9).contains(&length.len()) && length.bytes().all(|digit| digit.is_ascii_digit()) => {
            Ok(Framing::Length(length.parse().expect("digits")))
        }
        ([], ["chunked"]) => Ok(Framing::Chunks),
        (lengths, codings) => Err(format!("content-length {lengths:?}, transfer-encoding {codings:?}")),
    }
}

/// Takes chunks and trailers off `bytes`; what is left belongs to the next request.
fn chunks<'b>(mut bytes: &'b [u8], seen: &mut Seen) -> Result<&'b [u8], String> {
    loop {
        let Some(end) = find(bytes, b"\r\n") else {
            // The end of a line that is not there yet. A line feed alone would be one for somebody.
            let clear = bytes.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'\r');
            return if clear { Ok(&[]) } else { Err(format!("no size of a chunk: {}", bytes.escape_ascii())) };
        };
        let line = &bytes[..end];
        if !(1..=8).contains(&line.len()) || !line.iter().all(u8::is_ascii_hexdigit) {
            return Err(format!("no size of a chunk: {}", line.escape_ascii()));
        }
        let size = usize::from_str_radix(&String::from_utf8_lossy(line), 16).expect("digits");
        bytes = &bytes[end + 2..];
        if size == 0 {
            break;
        }
        let here = size.min(bytes.len());
        seen.body.extend_from_slice(&bytes[..here]);
        bytes = &bytes[here..];
        match bytes {
            [b'\r', b'\n', rest @ ..] => bytes = rest,
            [] | [b'\r'] => return Ok(&[]),
            _ => return Err("a chunk without its line end".into()),
        }
    }
    loop {
        let Some(end) = find(bytes, b"\r\n") else { return Ok(&[]) };
        let line = &bytes[..end];
        bytes = &bytes[end + 2..];
        if line.is_empty() {
            seen.whole = true;
            return Ok(bytes);
        }
        let (name, _) = field(line)?;
        if ["content-length", "transfer-encoding", "host", "connection"].contains(&name.as_str()) {
            return Err(format!("a trailer that belongs into the head: {name}"));
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[test]
fn it_reads_what_is_clear() {
    let bytes = b"POST /a HTTP/1.1\r\nhost: shop\r\ncontent-length: 2\r\n\r\nhiPOST /b HTTP/1.1\r\nHost: shop\r\n\
        transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\nGET /c HTTP/1.1\r\nhost: shop\r\n\r\n";
    let seen = requests(bytes).expect("clear");
    let targets: Vec<_> = seen.iter().map(|seen| (seen.target.as_str(), &seen.body[..], seen.whole)).collect();
    assert_eq!(targets, [("/a", &b"hi"[..], true), ("/b", b"hi", true), ("/c", b"", true)]);
    for end in 0..bytes.len() {
        let seen = requests(&bytes[..end]).expect("the beginning of what is clear");
        assert!(seen.iter().rev().skip(1).all(|seen| seen.whole), "{end}: {seen:?}");
    }
}
