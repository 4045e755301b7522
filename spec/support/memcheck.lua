--- memcheck: what spec/run.sh runs under memcheck: the release build's own lists of small blocks are in use there, which a
-- sanitizer build turns off.
local ag = require "argand"

jit.off()
ag.manual_seed(1)

local model = ag.nn.Sequential(ag.nn.Linear(6, 5), ag.nn.GELU(), ag.nn.LayerNorm(5), ag.nn.Linear(5, 3))
local opt = ag.optim.AdamW(model:parameters(), { lr = 0.01 })
local x, labels = ag.randn(8, 6), ag.randint(1, 4, { 8 })

for _ = 1, 12 do
  opt:zero_grad()
  local h = ag.checkpoint(function(input) return model(input) end, x)
  local loss = ag.autodiff({ checkpointing = "balanced" }, function() return (h * 1.5):tanh():cross_entropy(labels) end)
  loss:backward { retain_graph = true }
  loss:backward()
  opt:step()
  local a = ag.randn(3, 4, 5, { requires_grad = true })
  a[{ 2, ":", { 1, 3 } }]:permute(2, 1):flip(1):cumsum(1):sum():backward()
  local b = a:detach():clone()
  b[{ 1, { 2, 3 } }] = 0
  b[b:gt(0)] = 1
  ag.grad(ag.grad(a:pow(3):sum(), a, { create_graph = true }):square():sum(), a)
  collectgarbage()
end
print(ag.scope(function() return model(x) end):shape()[2])
