//! A fuzzer's input, taken from its front.

use hsmux_token::ck::CK_ULONG;

/// The rest of the input.
pub struct FuzzInput<'a>(pub &'a [u8]);

impl FuzzInput<'_> {
    /// The next byte, 0 at the end.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next eight bytes.
    pub fn number(&mut self) -> u64 {
        let mut number = [0; 8];
        let bytes = self.bytes(8);
        number[..bytes.len()].copy_from_slice(&bytes);
        u64::from_le_bytes(number)
    }

    /// So many bytes, fewer at the end, in a block of their own.
    pub fn bytes(&mut self, len: usize) -> Box<[u8]> {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken.into()
    }

    /// A pointer with its length.
    pub fn array(&mut self) -> FuzzArray {
        let (mode, len) = (self.byte(), self.byte());
        let data = self.bytes(usize::from(len));
        match mode % 8 {
            0 => FuzzArray::null(0),
            1 => FuzzArray::null(1 + CK_ULONG::from(len)),
            2 => FuzzArray::null(CK_ULONG::MAX),
            3 => FuzzArray {
                len: CK_ULONG::MAX - CK_ULONG::from(len),
                readable: false,
                ..FuzzArray::of(data)
            },
            _ => FuzzArray::of(data),
        }
    }
}

/// `pData` and `ulDataLen`, as an application has them.
pub struct FuzzArray {
    data: Box<[u8]>,
    null: bool,
    /// The length that the application says.
    pub len: CK_ULONG,
    /// True if the library can read it.
    pub readable: bool,
}

impl FuzzArray {
    /// With its true length.
    pub fn of(data: Box<[u8]>) -> Self {
        Self {
            len: data.len() as CK_ULONG,
            data,
            null: false,
            readable: true,
        }
    }

    fn null(len: CK_ULONG) -> Self {
        Self {
            data: Box::default(),
            null: true,
            len,
            readable: len == 0,
        }
    }

    /// The pointer and length that the application passes.
    pub fn pointer<T>(&mut self) -> *mut T {
        if self.null {
            std::ptr::null_mut()
        } else {
            self.data.as_mut_ptr().cast()
        }
    }

    /// The bytes that are there, unless the pointer is null.
    pub fn data(&self) -> Option<&[u8]> {
        (!self.null).then_some(&self.data)
    }
}
