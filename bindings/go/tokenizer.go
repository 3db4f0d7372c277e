// SPDX-License-Identifier: MIT

package mainarch

/*
#include <mainarch.h>
#include <stdlib.h>
*/
import "C"

import (
	"sync"
	"unsafe"
)

// NoToken is what TokenizerInfo has for a token that the tokenizer lacks.
const NoToken uint32 = C.MAINARCH_NO_TOKEN

// Flags of Tokenizer.EncodeFlags: use them on text from strangers.
const (
	EncodeNoSpecial uint64 = C.MAINARCH_ENCODE_NO_SPECIAL // "<|im_end|>" is plain text
	EncodeNoAdded   uint64 = C.MAINARCH_ENCODE_NO_ADDED   // and so is every added token: "<think>"
	// What the tokenizer puts around a text (BOS, perhaps EOS) is put there.
	EncodeAddSpecial uint64 = C.MAINARCH_ENCODE_ADD_SPECIAL
)

// Thinking is whether a chat model thinks first.
type Thinking int32

// Whether a chat model thinks first.
const (
	ThinkingDefault Thinking = C.MAINARCH_THINKING_DEFAULT // what the model's own template does
	ThinkingOn      Thinking = C.MAINARCH_THINKING_ON
	ThinkingOff     Thinking = C.MAINARCH_THINKING_OFF
)

// Tokenizer is text to tokens and back; chat prompts.
type Tokenizer struct {
	mu  sync.RWMutex // read: in a call
	ptr *C.mainarch_tokenizer
}

// TokenizerInfo is about a tokenizer.
type TokenizerInfo struct {
	VocabSize uint32 // tokens are below it
	BOSToken  uint32 // begin of text, by tokenizer_config.json; or NoToken
	EOSToken  uint32 // end of a turn, likewise
	PadToken  uint32 // padding, likewise
	HasChat   bool   // it has a chat template that this library can run
}

// ChatMessage is one turn of a chat.
type ChatMessage struct {
	Role    string // "system", "user" or "assistant"
	Content string // its special tokens are not escaped
}

// ChatOptions is how to render a chat; nil and the zero struct are all defaults.
type ChatOptions struct {
	Thinking           Thinking
	NoGenerationPrompt bool // do not open the assistant's turn
}

// OpenTokenizer reads a tokenizer alone, without a model or a group: a directory with tokenizer.json
// and perhaps tokenizer_config.json.
//
// Errors: ErrNotFound, ErrIO, ErrPermission, ErrBadModel, ErrUnsupported (a part of the tokenizer that is
// not followed).
func OpenTokenizer(path string) (*Tokenizer, error) {
	name, err := cString("path", path)
	if err != nil {
		return nil, err
	}
	defer free(name)
	var out *C.mainarch_tokenizer
	var e C.mainarch_error
	if C.mainarch_tokenizer_open(name, &out, &e) < 0 {
		return nil, newError(&e)
	}
	return &Tokenizer{ptr: out}, nil
}

// Tokenizer is the tokenizer of the model's checkpoint. It is read anew by each call: make one and
// share it.
//
// Errors: ErrNotFound (the checkpoint has none), ErrBadModel, ErrUnsupported.
func (m *Model) Tokenizer() (*Tokenizer, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ptr == nil {
		return nil, closed("model")
	}
	var out *C.mainarch_tokenizer
	var e C.mainarch_error
	if C.mainarch_tokenizer_from_model(m.ptr, &out, &e) < 0 {
		return nil, newError(&e)
	}
	return &Tokenizer{ptr: out}, nil
}

// Close lets go of the tokenizer. Decoders made from it go on working. The error is nil.
func (t *Tokenizer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	C.mainarch_tokenizer_destroy(t.ptr)
	t.ptr = nil
	return nil
}

// Info is about the tokenizer.
func (t *Tokenizer) Info() (TokenizerInfo, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return TokenizerInfo{}, closed("tokenizer")
	}
	var raw C.mainarch_tokenizer_info
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	var e C.mainarch_error
	if C.mainarch_tokenizer_info_get(t.ptr, &raw, &e) < 0 {
		return TokenizerInfo{}, newError(&e)
	}
	return TokenizerInfo{
		VocabSize: uint32(raw.vocab_size),
		BOSToken:  uint32(raw.bos_token),
		EOSToken:  uint32(raw.eos_token),
		PadToken:  uint32(raw.pad_token),
		HasChat:   raw.has_chat != 0,
	}, nil
}

// Encode gives the tokens of a text of your own, in which "<|im_end|>" is a special token. For that
// of strangers see EncodePlain. No token is put before or after; what is not UTF-8 is read as U+FFFD.
func (t *Tokenizer) Encode(text string) ([]uint32, error) { return t.EncodeFlags(text, 0) }

// EncodePlain is Encode without special or added tokens: "<|im_end|>" is plain text.
func (t *Tokenizer) EncodePlain(text string) ([]uint32, error) {
	return t.EncodeFlags(text, EncodeNoSpecial|EncodeNoAdded)
}

// EncodeFlags is Encode with flags Encode*. Errors: ErrInvalidArgument (more than 2^30 bytes).
func (t *Tokenizer) EncodeFlags(text string, flags uint64) ([]uint32, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return nil, closed("tokenizer")
	}
	bytes := []byte(text)
	// Enough for most text at once: encoding twice costs more than the memory.
	return growTokens(len(text)/2+16, func(at *C.uint32_t, capacity C.size_t, count *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_tokenizer_encode(t.ptr, bytesAt(bytes), C.size_t(len(bytes)), C.uint64_t(flags), at, capacity, count, e)
	})
}

// Decode gives the text of whole tokens, valid UTF-8: bytes that are not become U+FFFD, a number that
// is no token is no text. skipSpecial leaves out special tokens. For tokens that come one by one see
// NewDecoder.
func (t *Tokenizer) Decode(tokens []uint32, skipSpecial bool) (string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return "", closed("tokenizer")
	}
	return growText(8*len(tokens), func(at *C.char, capacity C.size_t, length *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_tokenizer_decode(t.ptr, tokensAt(tokens), C.size_t(len(tokens)), decodeFlags(skipSpecial), at, capacity, length, e)
	})
}

func decodeFlags(skipSpecial bool) C.uint64_t {
	if skipSpecial {
		return C.MAINARCH_DECODE_SKIP_SPECIAL
	}
	return 0
}

// TokenText gives the bytes of one token, which alone need not be UTF-8. Errors: ErrNotFound.
func (t *Tokenizer) TokenText(token uint32) (string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return "", closed("tokenizer")
	}
	return growText(32, func(at *C.char, capacity C.size_t, length *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_tokenizer_token_text(t.ptr, C.uint32_t(token), at, capacity, length, e)
	})
}

// TokenID gives the one token whose bytes are exactly text, an added one ("<|im_end|>") first.
// Errors: ErrNotFound.
func (t *Tokenizer) TokenID(text string) (uint32, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return NoToken, closed("tokenizer")
	}
	bytes := []byte(text)
	var out C.uint32_t
	var e C.mainarch_error
	if C.mainarch_tokenizer_token_id(t.ptr, bytesAt(bytes), C.size_t(len(bytes)), &out, &e) < 0 {
		return NoToken, newError(&e)
	}
	return uint32(out), nil
}

// SpecialTokens are all special tokens, ascending.
func (t *Tokenizer) SpecialTokens() ([]uint32, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return nil, closed("tokenizer")
	}
	return growTokens(64, func(at *C.uint32_t, capacity C.size_t, count *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_tokenizer_special_tokens(t.ptr, at, capacity, count, e)
	})
}

// RenderChat gives the prompt of a chat as the model was trained on it, by the checkpoint's own
// template, for Encode. Text is not escaped: "<|im_end|>" in a content ends the turn, so look for
// special tokens in what strangers say.
//
// Errors: ErrInvalidArgument (names the message with a wrong role, or with a zero byte; or the
// template refuses the chat, in its own words), ErrUnsupported (no template, or one that uses what is
// not known here, or has no such thinking switch), ErrBadModel (it is no template).
func (t *Tokenizer) RenderChat(messages []ChatMessage, options *ChatOptions) (string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return "", closed("tokenizer")
	}
	var raw C.mainarch_chat_options
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	if options != nil {
		raw.thinking = C.int32_t(options.Thinking)
		if options.NoGenerationPrompt {
			raw.flags |= C.MAINARCH_CHAT_NO_GENERATION_PROMPT
		}
	}
	var arena cArena
	defer arena.release()
	var at *C.mainarch_chat_message
	guess := 64
	if len(messages) > 0 {
		at = (*C.mainarch_chat_message)(arena.bytes(len(messages) * int(unsafe.Sizeof(*at))))
		list := unsafe.Slice(at, len(messages))
		for i, message := range messages {
			role, err := arena.text("role", message.Role)
			if err != nil {
				return "", err
			}
			content, err := arena.text("content", message.Content)
			if err != nil {
				return "", err
			}
			list[i] = C.mainarch_chat_message{role: role, content: content}
			guess += len(message.Role) + len(message.Content) + 64
		}
	}
	return growText(guess, func(text *C.char, capacity C.size_t, length *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_tokenizer_render_chat(t.ptr, at, C.size_t(len(messages)), &raw, text, capacity, length, e)
	})
}

// RenderChatJSON is the same of a chat as JSON, with tools, tool calls, reasoning and further
// variables: {"messages": [..], "tools": [..], "chat_template_kwargs": {..}}. The keys are described at
// mainarch_tokenizer_render_chat_json in mainarch.h; the prompt is that of transformers'
// apply_chat_template, but that a turn is opened for the assistant unless add_generation_prompt is
// false.
//
// Errors: as RenderChat; ErrInvalidArgument also names what is wrong in the JSON.
func (t *Tokenizer) RenderChatJSON(json []byte) (string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return "", closed("tokenizer")
	}
	return growText(len(json)+256, func(text *C.char, capacity C.size_t, length *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_tokenizer_render_chat_json(t.ptr, bytesAt(json), C.size_t(len(json)), text, capacity, length, e)
	})
}

// Decoder is tokens to text as they come. A character may be spread over tokens: its bytes are held
// back until the last is there, so that each piece is whole characters.
type Decoder struct {
	mu  sync.Mutex
	ptr *C.mainarch_decoder
}

// NewDecoder makes a decoder for one text after another. skipSpecial leaves out special tokens.
func (t *Tokenizer) NewDecoder(skipSpecial bool) (*Decoder, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return nil, closed("tokenizer")
	}
	var out *C.mainarch_decoder
	var e C.mainarch_error
	if C.mainarch_decoder_create(t.ptr, decodeFlags(skipSpecial), &out, &e) < 0 {
		return nil, newError(&e)
	}
	return &Decoder{ptr: out}, nil
}

// Close lets go of the decoder. The error is nil.
func (d *Decoder) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	C.mainarch_decoder_destroy(d.ptr)
	d.ptr = nil
	return nil
}

// Push gives the text that more tokens complete; it may be empty. After an error the tokens have not
// been taken.
func (d *Decoder) Push(tokens ...uint32) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ptr == nil {
		return "", closed("decoder")
	}
	return growText(8*len(tokens)+8, func(at *C.char, capacity C.size_t, length *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_decoder_push(d.ptr, tokensAt(tokens), C.size_t(len(tokens)), at, capacity, length, e)
	})
}

// Finish is the end: U+FFFD if a character is unfinished, else mostly nothing (tokenizers whose texts
// depend on what comes last hold that back). The decoder may then start on another text.
func (d *Decoder) Finish() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ptr == nil {
		return "", closed("decoder")
	}
	return growText(4, func(at *C.char, capacity C.size_t, length *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_decoder_finish(d.ptr, at, capacity, length, e)
	})
}
