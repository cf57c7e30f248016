// RocketMQ's own client for Go, as tour.py is for Python. Usage: tour HOST:PORT TOPIC [KEY SECRET NAMESPACE]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var (
	topic   string
	guarded = len(os.Args) > 5
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func message(body string) *rocketmq.Message {
	made := &rocketmq.Message{Topic: topic, Body: []byte(body)}
	made.SetTag("tag")
	made.SetKeys("key-" + body)
	made.AddProperty("colour", "red")
	return made
}

func recalled(producer rocketmq.Producer, handle string) string {
	id, err := producer.Recall(context.Background(), topic, handle)
	if err != nil {
		return err.Error()
	}
	return "OK " + id
}

func config(address, group string) *rocketmq.Config {
	made := &rocketmq.Config{
		Endpoint: address, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{},
	}
	if guarded {
		made.Credentials.AccessKey, made.Credentials.AccessSecret = os.Args[3], os.Args[4]
		made.NameSpace = os.Args[5]
	}
	return made
}

func main() {
	address := os.Args[1]
	topic = os.Args[2]
	rocketmq.EnableSsl = guarded
	background := context.Background()
	told := map[string]any{}
	producer, err := rocketmq.NewProducer(config(address, ""), rocketmq.WithTopics(topic))
	must(err)
	must(producer.Start())

	var lock sync.Mutex
	seen := [][]any{}
	var wanted atomic.Int32
	wanted.Store(6)
	byTags := map[string]*rocketmq.FilterExpression{topic: rocketmq.NewFilterExpression("tag || other")}
	byProperties := map[string]*rocketmq.FilterExpression{
		topic: rocketmq.NewFilterExpressionWithType("colour = 'red' AND size IS NULL", rocketmq.SQL92),
	}
	push, err := rocketmq.NewPushConsumer(config(address, "push"),
		rocketmq.WithPushAwaitDuration(5*time.Second),
		rocketmq.WithPushSubscriptionExpressions(byTags),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{
			Consume: func(view *rocketmq.MessageView) rocketmq.ConsumerResult {
				body, attempt := string(view.GetBody()), view.GetDeliveryAttempt()
				lock.Lock()
				seen = append(seen, []any{body, attempt, time.Now().UnixMilli(), false})
				lock.Unlock()
				if body == "fail" && attempt == 1 {
					return rocketmq.FAILURE
				}
				wanted.Add(-1)
				return rocketmq.SUCCESS
			},
		}))
	must(err)
	must(push.Start())

	send := func(made *rocketmq.Message) *rocketmq.SendReceipt {
		receipts, err := producer.Send(background, made)
		must(err)
		return receipts[0]
	}
	told["now_id"] = []bool{send(message("now")).MessageID != ""}
	due := time.Now().Add(3 * time.Second)
	told["due_ms"] = due.UnixMilli()
	later := message("delayed")
	later.SetDelayTimestamp(due)
	delayed := send(later)
	distant := message("far")
	distant.SetDelayTimestamp(time.Now().Add(72 * time.Hour))
	far := send(distant)
	recalls := []string{}
	for range 2 {
		recalls = append(recalls, strings.Split(recalled(producer, far.RecallHandle), " ")[0])
	}
	told["recalls"] = recalls
	filtered := message("filtered")
	filtered.SetTag("none")
	filtered.AddProperty("colour", "blue")
	send(filtered)
	send(message("fail"))
	for n := range 3 {
		ordered := message(fmt.Sprintf("fifo%d", n))
		ordered.SetMessageGroup("group")
		send(ordered)
	}
	for n := 0; n < 600 && wanted.Load() > 0; n++ {
		time.Sleep(100 * time.Millisecond)
	}
	told["all_came"] = wanted.Load() == 0
	told["recall_of_delivered"] = recalled(producer, delayed.RecallHandle)
	must(push.GracefulStop())
	lock.Lock()
	told["seen"] = seen
	lock.Unlock()

	simple, err := rocketmq.NewSimpleConsumer(config(address, "simple"),
		rocketmq.WithSimpleAwaitDuration(5*time.Second), rocketmq.WithSimpleSubscriptionExpressions(byProperties))
	must(err)
	must(simple.Start())
	taken := map[string]string{}
	until := time.Now().Add(time.Minute)
	for len(taken) < 6 && time.Now().Before(until) {
		views, _ := simple.Receive(background, 16, 20*time.Second) // nothing new is an error here
		for _, view := range views {
			if len(taken) == 0 {
				must(simple.ChangeInvisibleDuration(view, 30*time.Second))
			}
			taken[string(view.GetBody())] = fmt.Sprint(*view.GetTag(), view.GetProperties(), view.GetKeys())
			must(simple.Ack(background, view))
		}
	}
	told["simple"] = taken
	rest := []string{}
	views, _ := simple.Receive(background, 16, 20*time.Second)
	for _, view := range views {
		rest = append(rest, string(view.GetBody()))
	}
	told["rest"] = rest
	must(simple.GracefulStop())
	must(producer.GracefulStop())
	text, err := json.Marshal(told)
	must(err)
	fmt.Println(string(text))
}
