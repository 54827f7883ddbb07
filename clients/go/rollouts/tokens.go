package rollouts

import (
	"encoding/binary"
	"math"

	modelv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/model/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
)

const tokenBytes = 4

// CallTokens are the tokens of one model call, put together from what the events carry.
type CallTokens struct {
	// Prompt has all ids that the model read, as little-endian int32; nil when they cannot be put
	// together.
	Prompt []byte
	// Output has the ids that it sampled, likewise.
	Output []byte
	// Logprobs has the log probability of each of these, as little-endian float32; empty when not
	// captured.
	Logprobs []byte
}

// Tokens returns the tokens of each model call that has some, by call_id.
func Tokens(calls []*rolloutv1.ModelCallCompleted) map[string]CallTokens {
	found := make(map[string]CallTokens)
	for _, call := range calls {
		said := call.GetTokens()
		if len(said.GetOutputTokenIds()) == 0 && len(said.GetPromptTokenIds()) == 0 {
			continue
		}
		var parent *CallTokens
		if tokens, known := found[call.GetParentCallId()]; known && !call.GetDetached() {
			parent = &tokens
		}
		found[call.GetCallId()] = CallTokens{
			Prompt:   promptOf(said, parent),
			Output:   said.GetOutputTokenIds(),
			Logprobs: said.GetLogprobs(),
		}
	}
	return found
}

func promptOf(said *modelv1.TokenCapture, parent *CallTokens) []byte {
	size := int(said.GetPromptPrefixTokens()) * tokenBytes
	if size == 0 {
		return append([]byte{}, said.GetPromptTokenIds()...)
	}
	if parent == nil || parent.Prompt == nil || size > len(parent.Prompt)+len(parent.Output) {
		return nil
	}
	before := append(append([]byte{}, parent.Prompt...), parent.Output...)
	return append(before[:size], said.GetPromptTokenIds()...)
}

// TokenIDs unpacks token ids.
func TokenIDs(packed []byte) []int32 {
	ids := make([]int32, len(packed)/tokenBytes)
	for i := range ids {
		ids[i] = int32(binary.LittleEndian.Uint32(packed[i*tokenBytes:]))
	}
	return ids
}

// LogProbs unpacks log probabilities.
func LogProbs(packed []byte) []float32 {
	values := make([]float32, len(packed)/tokenBytes)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(packed[i*tokenBytes:]))
	}
	return values
}
