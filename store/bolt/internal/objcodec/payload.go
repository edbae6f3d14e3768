package objcodec

import (
	"fmt"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// AppendPayload appends the encoded object of an entry, decompressed, and returns the ID
// of its codec. later is as in Decode.
func (c *Codec) AppendPayload(buf []byte, e store.Entry, later *Codec) (out []byte, codecID byte, err error) {
	if later != nil {
		if out, codecID, err = later.AppendPayload(buf, e, nil); err == nil {
			return out, codecID, nil
		}
	}
	codecID, id, payload, err := c.parse(e)
	switch {
	case err != nil:
		return buf, 0, err
	case id == dictionary.None:
		return append(buf, payload...), codecID, nil
	}
	if out, err = c.Decompress(id, payload, buf); err != nil {
		return buf, 0, c.Corrupt("object "+e.Key, err)
	}
	return out, codecID, nil
}

// PayloadSize returns the number of bytes that AppendPayload appends, and the ID of the
// codec. A small object has to be decompressed for it: zstd declares no size below 256
// bytes.
func (c *Codec) PayloadSize(e store.Entry, later *Codec) (n int, codecID byte, err error) {
	if later != nil {
		if n, codecID, err = later.PayloadSize(e, nil); err == nil {
			return n, codecID, nil
		}
	}
	codecID, id, payload, err := c.parse(e)
	if err != nil || id == dictionary.None {
		return len(payload), codecID, err
	}
	if n := codec.DecompressedSize(payload); n > 0 {
		return n, codecID, nil
	}
	if payload, err = c.Decompress(id, payload, nil); err != nil {
		err = c.Corrupt("object "+e.Key, err)
	}
	return len(payload), codecID, err
}

// parse returns the parts of an entry's Raw.
func (c *Codec) parse(e store.Entry) (codecID byte, id uint64, payload []byte, err error) {
	if e.Raw == nil {
		return 0, 0, nil, fmt.Errorf("the entry of %q has no encoded object", e.Key)
	}
	if codecID, id, payload, err = record.ParseRaw(e.Raw); err != nil {
		err = c.Corrupt("object "+e.Key, err)
	}
	return codecID, id, payload, err
}
