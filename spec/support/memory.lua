--- memory: what is held, and whether it is what it was.
local jit = require "jit"
local ag = require "argand"

local M = {}

--- Live bytes, tape nodes and heap blocks after a full collection. Compiled traces hold what they found in upvalues: they go
--- first.
function M.held()
  jit.flush()
  collectgarbage()
  collectgarbage()
  local memory = ag.memory()
  return memory.live, memory.nodes, memory.heap_blocks
end

--- Raises unless the process still computes and differentiates.
function M.sane()
  local x = ag.tensor({1, 2, 3}, {requires_grad = true})
  local sum = (x * x):sum()
  sum:backward()
  assert(sum:item() == 14 and x.grad:get(3) == 6, "the process is not usable any more")
end

--- Raises when held() gives more than these numbers. Less is no fault: a stale slot of Lua's held something before.
function M.assert_not_grown(live, nodes, blocks)
  local live_after, nodes_after, blocks_after = M.held()
  for _ = 1, 3 do -- such a slot may hold a value now: other work overwrites it, what is lost stays lost
    if live_after <= live and nodes_after <= nodes and blocks_after <= blocks then return end
    coroutine.wrap(M.sane)()
    live_after, nodes_after, blocks_after = M.held()
  end
  assert(live_after <= live, ("%+d bytes in tensors"):format(live_after - live))
  assert(nodes_after <= nodes, ("%+d tape nodes"):format(nodes_after - nodes))
  assert(blocks_after <= blocks, ("%+d heap blocks"):format(blocks_after - blocks))
end

return M
