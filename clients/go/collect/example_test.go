package collect_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"google.golang.org/grpc"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/collect"
	"github.com/gymmesh/gymmesh/clients/go/mesh"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

func Example() {
	agent, err := mesh.Dial("127.0.0.1:9401")
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()
	params := &responsesv1.ResponseParams{}
	text := `{"input": "Put two apples and a tea into the basket."}`
	if err := codec.Unmarshal([]byte(text), params); err != nil {
		log.Fatal(err)
	}
	task := &rolloutv1.Task{
		TaskId: "shop-1", Environment: "shop", Params: params,
		PayloadJson: []byte(`{"wanted": {"apple": 2, "tea": 1}}`),
	}
	jobs := slices.Values([]collect.Job{{Task: task, RolloutID: "run-1/shop-1/0"}})
	agents := []grpc.ClientConnInterface{agent}
	for outcome, err := range collect.Run(context.Background(), agents, jobs, collect.Options{RunID: "run-1"}) {
		switch {
		case err != nil: // the context ended
			log.Fatal(err)
		case outcome.Failure != nil:
			fmt.Println(outcome.Job.RolloutID, mesherr.Describe(outcome.Failure))
		default:
			fmt.Println(outcome.Job.RolloutID, outcome.Rollout.GetVerified().GetVerification().GetReward())
		}
	}
}
