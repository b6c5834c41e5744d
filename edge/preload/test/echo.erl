%% escript echo.erl serve ADDRESS PORT: an echo server, a process for each connection. escript echo.erl ADDRESS PORT: 20
%% clients of it, each with packets of its own, active and passive in turns, every byte compared.
-module(echo).
-mode(compile).

main(["serve", Address, Port]) ->
    {ok, At} = inet:parse_address(Address),
    {ok, L} = gen_tcp:listen(list_to_integer(Port), [binary, {ip, At}, {packet, 4}, {active, false}, {backlog, 100}]),
    accept(L);
main([Address, Port]) ->
    All = [spawn_monitor(fun() -> client(Address, list_to_integer(Port), I) end) || I <- lists:seq(1, 20)],
    [receive {'DOWN', Ref, process, _, Why} -> normal = Why after 50000 -> exit(timeout) end || {_, Ref} <- All],
    io:format("20 connections, 100 packets there and back~n").

accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    P = spawn(fun() -> receive go -> serve(S) end end),
    ok = gen_tcp:controlling_process(S, P),
    P ! go,
    accept(L).

serve(S) ->
    inet:setopts(S, [{active, once}]),
    receive
        {tcp, S, B} -> ok = gen_tcp:send(S, B), serve(S);
        {tcp_closed, S} -> ok
    end.

client(Address, Port, I) ->
    {ok, S} = gen_tcp:connect(Address, Port, [binary, {packet, 4}, {active, false}], 30000),
    [begin
        B = crypt(I, N),
        ok = gen_tcp:send(S, B),
        {ok, B} = gen_tcp:recv(S, 0, 40000)
     end || N <- lists:seq(1, 100)],
    ok = gen_tcp:close(S).

crypt(I, N) -> binary:copy(<<I:16, N:16>>, 1 + (I * N) rem 5000).
