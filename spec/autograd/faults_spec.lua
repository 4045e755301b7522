-- faults_spec: every single allocation of a step with autodiff fails once: an error each time, and nothing left behind.
local ag = require "argand"
local core = require "argand.core"

local Double = ag.Function {
  forward = function(ctx, x)
    local y = x * 2
    ctx:save(x, y)
    return y
  end,
  backward = function(ctx, g) return g * 2 + ctx.saved[2] * 0 end,
}

local x, w = ag.rand(4, 8, {requires_grad = true}), ag.rand(8, 8, {requires_grad = true})

local steps = {}
function steps.backward()
  local h = x:matmul(w):softmax(2) * 1
  h[1] = x[2] * 3
  h:add_(x);
  (h * h):log():mean():backward()
end
function steps.create_graph()
  local g = ag.grad(x:matmul(w):tanh():sum(), {x, w}, {create_graph = true})
  ag.grad((g[1] * g[1]):sum(), {w})
end
function steps.balanced()
  ag.autodiff({checkpointing = "balanced"}, function()
    return ((x:exp() + 1):sqrt():matmul(w):sin():cos() * x):sum()
  end):backward()
end
function steps.checkpoint()
  local y = ag.checkpoint(function(a) return (a:matmul(w):dropout(0.5) * x):exp() end, x:sin())
  ag.grad(y:sum(), {x, w})
  ag.checkpoint(function(a) return a * w end, w):sum():backward()
end
function steps.functions()
  local h = Double(x)
  h:register_hook(function(g) return g + 1 end)
  Double(h):sum():backward()
end

local function state()
  collectgarbage()
  collectgarbage()
  local memory = ag.memory()
  return memory.live, memory.nodes
end

describe("a failing allocation", function()
  for name, step in pairs(steps) do
    it("is an error and leaves nothing behind: " .. name, function()
      step()
      x.grad, w.grad = nil, nil
      local live, nodes = state()
      core.memory_fail_after(0)
      step()
      local total = core.memory_fail_after(0)
      x.grad, w.grad = nil, nil
      assert.is_true(total > 10)
      for n = 1, total do
        core.memory_fail_after(n)
        local ok, err = pcall(step)
        core.memory_fail_after(0)
        x.grad, w.grad = nil, nil
        assert.is_false(ok, ("allocation %d of %d failed unnoticed"):format(n, total))
        assert.equal("memory", err.code)
        assert.is_true(ag.is_grad_enabled())
      end
      local live_after, nodes_after = state()
      assert.equal(live, live_after)
      assert.equal(nodes, nodes_after)
    end)
  end
end)
