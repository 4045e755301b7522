--- kinds: the names of the collectives, as the engine knows them.
return {
  all_reduce = true, reduce = true, broadcast = true, all_gather = true, reduce_scatter = true, gather = true, scatter = true,
  all_to_all = true, send = true, receive = true, barrier = true,
}
