use std::collections::BTreeMap;
use std::io::Read;

/// The first settings of an HTTP/2 server (RFC 9113, sections 3.4 and 6.5), by their numbers.
pub struct Http2Settings(BTreeMap<u16, u32>);

/// The kind of a frame (section 6.5).
const SETTINGS: u8 = 4;

impl Http2Settings {
    /// Reads the first frame of a connection.
    pub fn read(connection: &mut impl Read) -> Self {
        let mut head = [0; 9];
        connection.read_exact(&mut head).expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        assert_eq!(head[3], SETTINGS, "{head:?}");
        let mut payload = vec![0; length as usize];
        connection.read_exact(&mut payload).expect("a frame");
        let settings = payload.chunks(6).map(|setting| {
            let (number, value) = setting.split_at(2);
            let number = number.try_into().expect("two bytes");
            let value = value.try_into().expect("four bytes");
            (u16::from_be_bytes(number), u32::from_be_bytes(value))
        });
        Self(settings.collect())
    }

    /// `SETTINGS_MAX_CONCURRENT_STREAMS`
    pub fn requests_at_once(&self) -> Option<u32> {
        self.0.get(&3).copied()
    }

    /// `SETTINGS_INITIAL_WINDOW_SIZE`
    pub fn window(&self) -> Option<u32> {
        self.0.get(&4).copied()
    }

    /// `SETTINGS_MAX_HEADER_LIST_SIZE`
    pub fn longest_head(&self) -> Option<u32> {
        self.0.get(&6).copied()
    }
}
