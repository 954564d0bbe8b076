//! Two RSA-2048 keys, for this file only.

/// Prime 1 and prime 2, in hex.
pub(super) const PRIMES: [[&str; 2]; 2] = [
    [
        concat!(
            "d81e2aca056d70bbfb2aef19bd353ebd1b2e15238fefb7c02c053dab17326e80",
            "cd5c73ac6b6b92bbb13823641cb6670f54c0cb600d7c82f61266f0b4adbe67f9",
            "5448d0ecf35536e1dedab368f234f7096e7f96247de0fc271519a14c0c202a44",
            "a60dcd99a174c2c0feb5c9e78029aa0885e3f12468a4f5907c76927d76c9b7a7",
        ),
        concat!(
            "b91b68e0af1ed0e68cd0ecda3901613a7ae9e01794ca2fbc7f3c0eea94c0a867",
            "d573db7e654ac9940849cec6b54b9910df8eb37e26752f78cef0373ed28fa6bd",
            "66070b29e19ae9cec5540eecb15527c54a3cc79daea5bb6ef5b6631b8c35a27e",
            "b1d9ec6b95c31aba8b885c13b868ca6ed01f59bfc2a375273aae0c0c312344a1",
        ),
    ],
    [
        concat!(
            "d211966ec251e994c45cb41a5557c8da1ea3139fffa16728e2d4ff1d89ff1a60",
            "a3b7910352e16bdda558103db9ee3bd08b0778e0e8c84a3111857f3de2dad7c8",
            "36c5527fc64494823e3d6c68ce4f341d1541bcb44e5ac895a066718547a5084d",
            "627a5e35d4aed32f3d10731dd96c6722072a7976c42853afce04351574e780f9",
        ),
        concat!(
            "c84c233d280d4f759d41702734be2ec6e097515e027cb9881c7a0f9d868cf8a9",
            "1fab4e70017616a6ac0b31bc820b7c2eceb03dbc7468a5b26bea617df447a600",
            "2877351913886ed7e8e1bb4314ae93fac62bd60bb48ce60a0968e5fd95c02e5c",
            "b60a1f27ce20198725b3defa648a248729521aeff26f6847f76745dab8a34621",
        ),
    ],
];
