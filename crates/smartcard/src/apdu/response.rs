use zeroize::Zeroizing;

use super::{ApduError, StatusWord};

/// A response APDU: data, then two bytes of status.
#[derive(Clone, PartialEq, Eq)]
pub struct ResponseApdu {
    /// Response data, which may be a secret: wiped when dropped.
    pub data: Zeroizing<Vec<u8>>,
    /// The card's status word.
    pub status: StatusWord,
}

impl ResponseApdu {
    /// A status alone.
    pub fn status(status: StatusWord) -> Self {
        Self {
            data: Zeroizing::default(),
            status,
        }
    }

    /// Data, and a status of success.
    pub fn ok(data: impl Into<Vec<u8>>) -> Self {
        Self {
            data: Zeroizing::new(data.into()),
            status: StatusWord::OK,
        }
    }

    /// Takes the bytes of a response over, without a copy.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, ApduError> {
        let mut data = Zeroizing::new(bytes);
        let status = *data
            .last_chunk()
            .ok_or(ApduError::Malformed("a response without status bytes"))?;
        let len = data.len() - status.len();
        data.truncate(len);
        Ok(Self {
            data,
            status: StatusWord(u16::from_be_bytes(status)),
        })
    }

    /// The bytes for the host.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.data.len() + 2);
        bytes.extend_from_slice(&self.data);
        bytes.extend_from_slice(&self.status.0.to_be_bytes());
        Zeroizing::new(bytes)
    }
}

/// Shows the length only: the data may be a plaintext.
impl std::fmt::Debug for ResponseApdu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let len = self.data.len();
        write!(f, "Response({len} bytes, {:04X})", self.status.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_status_go_there_and_back() {
        let response = ResponseApdu::ok([1, 2, 3]);
        assert_eq!(response.encode().as_slice(), [1, 2, 3, 0x90, 0]);
        assert_eq!(
            ResponseApdu::parse(vec![1, 2, 3, 0x90, 0]).unwrap(),
            response
        );
        let refused = ResponseApdu::parse(vec![0x6A, 0x82]).unwrap();
        assert_eq!(refused, ResponseApdu::status(StatusWord::FILE_NOT_FOUND));
        assert!(ResponseApdu::parse(vec![0x90]).is_err());
        assert!(ResponseApdu::parse(Vec::new()).is_err());
    }
}
