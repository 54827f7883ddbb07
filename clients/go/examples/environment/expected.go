package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	verifyv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/verify/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// GetExpected gives audits the calls and the message that earn a reward of 1. Whoever reaches the
// port could ask for them, so the operator has to allow it.
func (s *service) GetExpected(
	_ context.Context, request *verifyv1.GetExpectedRequest,
) (*verifyv1.GetExpectedResponse, error) {
	if !s.audit {
		return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_NOT_PERMITTED,
			"right answers are given to nobody; start the environment with --audit for audits to have them",
			"method", "gymmesh.verify.v1.AuditService/GetExpected")
	}
	if request.GetTask() == nil {
		return nil, missing("task")
	}
	wanted, err := wantedOf(request.GetTask())
	if err != nil {
		return nil, taskInvalid(request.GetTask(), err)
	}
	total := int64(0)
	var items []*responsesv1.Item
	for i, item := range slices.Sorted(maps.Keys(wanted)) {
		total += wanted[item]
		arguments, err := jsonvalue.Write(jsonvalue.NewObject("item", item, "count", wanted[item]))
		if err != nil {
			return nil, faultOf(err)
		}
		items = append(items, &responsesv1.Item{Kind: &responsesv1.Item_FunctionCall{
			FunctionCall: &responsesv1.FunctionCall{
				Name: new("stock"), Arguments: arguments, CallId: new(fmt.Sprintf("call-%d", i)),
			},
		}})
	}
	items = append(items, codec.NewMessage("assistant", fmt.Sprint(total)))
	return &verifyv1.GetExpectedResponse{Answers: []*verifyv1.ExpectedAnswer{{
		Kind: verifyv1.AnswerKind_ANSWER_KIND_CALLS, Items: items,
	}}}, nil
}
