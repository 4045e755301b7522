-- Positions are 1-based and may be negative, in arguments, index tensors and results, on every device; others are refused.
local ag = require "argand"
local cases = require "support.cases"

local function ints(values, device) return ag.tensor(values, {dtype = "i64"}):to(device) end

-- Calls with a position list that has to be legal for a dim of three; fn gets the index tensor.
local function calls_with_index(device)
  local x = ag.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}):to(device)
  local row = ag.tensor({1, 2, 3}):to(device)
  return {
    gather = function(index) return row:gather(1, index) end,
    scatter = function(index) return row:scatter(1, index, row:narrow(1, 1, #index)) end,
    scatter_add = function(index) return row:scatter_add(1, index, row:narrow(1, 1, #index)) end,
    index_select = function(index) return x:index_select(2, index) end,
    index_add = function(index) return row:index_add(1, index, row:narrow(1, 1, #index)) end,
    index_copy = function(index) return row:index_copy(1, index, row:narrow(1, 1, #index)) end,
    take = function(index) return row:take(index) end,
    index_put = function(index) return row:index_put(index, row:narrow(1, 1, #index)) end,
    embedding = function(index) return x:embedding(index) end,
  }
end

local calls_with_labels = {
  one_hot = function(labels) return labels:one_hot(3) end,
  cross_entropy = function(labels, x) return x:cross_entropy(labels) end,
  nll_loss = function(labels, x) return x:nll_loss(labels) end,
}

local function refused(fn, op, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "was taken")
  assert(type(err) == "table" and err.code == "index", tostring(err))
  assert(err.op == op, "the error names " .. tostring(err.op))
end

describe("positions", function()
  it("out of range are refused by every op with an index", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      for op, fn in pairs(calls_with_index(device)) do
        for _, bad in ipairs {0, 4, -4, 1000, -1000} do
          check(("%s at %d on %s"):format(op, bad, device), refused, fn, op, ints({1, bad}, device))
        end
        check(("%s of both ends on %s"):format(op, device), fn, ints({3, -3}, device))
      end
      local x = ag.zeros(2, 3):to(device)
      for op, fn in pairs(calls_with_labels) do
        for _, bad in ipairs {0, 4, -1} do
          check(("%s of %d on %s"):format(op, bad, device), refused, fn, op, ints({1, bad}, device), x)
        end
      end
    end
    check.done()
  end)

  it("negative ones count from the end", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      for op, fn in pairs(calls_with_index(device)) do
        check(op .. " on " .. device, function()
          assert.are.same(fn(ints({2, 3}, device)):tolist(), fn(ints({-2, -1}, device)):tolist())
        end)
      end
    end
    check.done()
  end)

  it("of every int dtype are taken", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      for op, fn in pairs(calls_with_index(device)) do
        local expected = fn(ints({3, 1}, device)):tolist()
        for _, dtype in ipairs {"i32", "i16", "i8", "u8"} do
          check(("%s by %s on %s"):format(op, dtype, device), function()
            assert.are.same(expected, fn(ints({3, 1}, device):to(dtype)):tolist())
          end)
        end
      end
    end
    check.done()
  end)

  it("that ops give are 1-based, and lead back to the values", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      local x = ag.tensor({{3, 9, 1}, {7, 2, 8}}):to(device)
      local function leads_back(name, values, positions, dim)
        check(name .. " on " .. device, function()
          assert.are.same(values:tolist(), x:gather(dim, positions):tolist())
          assert(positions:ge(1):all():item() and positions:le(x:size(dim)):all():item())
        end)
      end
      for dim = 1, 2 do
        for _, op in ipairs {"sort", "cummax", "cummin"} do
          local values, positions = x[op](x, dim)
          leads_back(op, values, positions, dim)
        end
        local values, positions = x:max_dim(dim, true)
        leads_back("max_dim", values, positions, dim)
        values, positions = x:topk(2, dim)
        leads_back("topk", values, positions, dim)
        leads_back("argmin", x:amin({dim}, true), x:argmin(dim, true), dim)
        leads_back("argsort", (x:sort(dim)), x:argsort(dim), dim)
      end
      check("argmax of all on " .. device, function() assert(x:argmax():item() == 2) end)
      check("nonzero on " .. device, function()
        assert.are.same({{1, 2}, {2, 1}}, ag.tensor({{0, 1}, {1, 0}}):to(device):nonzero():tolist())
      end)
      check("unique on " .. device, function()
        local values, inverse = ag.tensor({5, 2, 5}):to(device):unique()
        assert.are.same({5, 2, 5}, values:index_select(1, inverse):tolist())
      end)
      check("randperm on " .. device, function()
        local list = ag.randperm(50, {device = device}):sort():tolist()
        for i = 1, 50 do assert(list[i] == i) end
      end)
    end
    check.done()
  end)

  it("of dims: 1 to ndim, or negative; 0 and others are refused", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      local x = ag.tensor({{1, 2, 3}, {4, 5, 6}}):to(device)
      for name, fn in pairs {
        sum = function(dim) return x:sum(dim) end, cumsum = function(dim) return x:cumsum(dim) end,
        softmax = function(dim) return x:softmax(dim) end, argmax = function(dim) return x:argmax(dim) end,
        narrow = function(dim) return x:narrow(dim, 1, 1) end, select = function(dim) return x:select(dim, 1) end,
        transpose = function(dim) return x:transpose(dim, 1) end, cat = function(dim) return ag.cat({x, x}, dim) end,
        sort = function(dim) return (x:sort(dim)) end, roll = function(dim) return x:roll({1}, {dim}) end,
        flip = function(dim) return x:flip({dim}) end,
      } do
        check(name .. " dim 2 is dim -1 on " .. device, function() assert.are.same(fn(2):tolist(), fn(-1):tolist()) end)
        for _, bad in ipairs {0, 3, -3} do check(("%s dim %d on %s"):format(name, bad, device), refused, fn, name, bad) end
      end
    end
    check.done()
  end)

  it("of embedding's padding row: it gets no gradient", function()
    for _, device in ipairs(ag.devices()) do
      local weight = ag.ones(3, 2):to(device)
      weight.requires_grad = true
      weight:embedding(ints({1, 2, 2, 3}, device), {padding_idx = 2}):sum():backward()
      assert.are.same({{1, 1}, {0, 0}, {1, 1}}, weight.grad:tolist())
      refused(weight.embedding, "embedding", weight, ints({1}, device), {padding_idx = 4})
    end
  end)

  it("of ignored labels: they count for nothing", function()
    for _, device in ipairs(ag.devices()) do
      local x = ag.tensor({{1, 2, 3}, {3, 2, 1}, {0, 5, 0}}):to(device)
      local all, some = ints({1, 2, 3}, device), ints({1, 2}, device)
      local kept = x:narrow(1, 1, 2):cross_entropy(some):item()
      assert.is_near(kept, x:cross_entropy(all, {ignore_index = 3}):item(), 1e-6)
      assert.is_near(kept, x:cross_entropy(ints({1, 2, -100}, device), {ignore_index = -100}):item(), 1e-6)
    end
  end)
end)
