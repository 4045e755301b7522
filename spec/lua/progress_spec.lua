--- progress: what it writes to a terminal and elsewhere, with a clock and a terminal of our own.
local core = require "argand.core"
local progress = require "argand.progress"
local terminal = require "support.terminal"

-- Runs fn(tick) with a fake clock, terminal and stderr; tick(seconds) moves the clock. Returns what was written.
local function written(is_terminal, fn, width)
  local saved = { now = core.now, isatty = core.isatty, term_width = core.term_width }
  local stderr, time, parts = io.stderr, 100, {}
  core.now = function() return time end
  core.isatty = function() return is_terminal end
  core.term_width = function() return width or 80 end
  io.stderr = {
    write = function(self, ...)
      for i = 1, select("#", ...) do parts[#parts + 1] = (select(i, ...)) end
      return self
    end,
    flush = function() end,
  }
  local ok, err = pcall(fn, function(seconds) time = time + seconds end)
  io.stderr = stderr
  for name, value in pairs(saved) do core[name] = value end
  if not ok then error(err, 0) end
  return table.concat(parts)
end

local function three()
  local i = 0
  return function()
    i = i + 1
    if i <= 3 then return i, i * i end
  end
end

describe("progress", function()
  it("hands on every value of the loop", function()
    local seen = {}
    written(false, function()
      for i, square in progress(three(), { total = 3 }) do seen[#seen + 1] = { i, square } end
    end)
    assert.same({ { 1, 1 }, { 2, 4 }, { 3, 9 } }, seen)
    local sum = 0
    written(false, function()
      for i in progress(4) do sum = sum + i end
    end)
    assert.equal(10, sum)
  end)

  it("writes a line every ten seconds and one at the end where there is no terminal", function()
    local text = written(false, function(tick)
      for _ in progress(40, { label = "epoch 1" }) do tick(0.5) end
    end)
    assert.equal("epoch 1  50% 20/40  2.0/s  00:10 left\nepoch 1 100% 40/40  2.0/s  00:20\n", text)
    text = written(false, function(tick)
      for _ in progress(3) do tick(1) end
    end)
    assert.equal("100% 3/3  1.0/s  00:03\n", text)
  end)

  it("redraws one line of a terminal at most ten times a second", function()
    local text = written(true, function(tick)
      for _ in progress(100) do tick(0.01) end
    end)
    local _, draws = text:gsub("\r", "")
    assert.is_true(draws >= 10 and draws <= 12, draws .. " draws")
    assert.equal("\r  1% [" .. (" "):rep(30) .. "] 1/100  100.0/s  00:01 left\27[K", text:match "^\r[^\r]*")
    assert.equal("\r100% [" .. ("="):rep(30) .. "] 100/100  100.0/s  00:01\27[K\n", text:match "\r[^\r]*$")
  end)

  it("cuts the line to the terminal's width", function()
    local text = written(true, function(tick)
      for _ in progress(50, { label = ("long "):rep(30) }) do tick(1) end
    end, 40)
    for line in text:gmatch "\r([^\r\n]*)\27%[K" do assert.equal(39, #line) end
  end)

  it("tells rate and time left", function()
    local function text_after(total, done, seconds, note)
      local text
      written(false, function(tick)
        local bar = progress.Progress { total = total, quiet = true }
        tick(seconds)
        bar:update(done, note)
        text = bar:text()
      end)
      return text
    end
    assert.equal(" 25% 25/100  2.5/s  00:30 left", text_after(100, 25, 10))
    assert.equal(" 10% 10/100  10.0 s each  15:00 left", text_after(100, 10, 100))
    assert.equal(" 50% 5000/10000  5000/s  00:01 left", text_after(10000, 5000, 1))
    assert.equal("  1% 1/100  100.0 s each  2:45:00 left", text_after(100, 1, 100))
    assert.equal("  0% 0/100  0.0/s  --:-- left", text_after(100, 0, 5))
    assert.equal("  0% 0/100  0.0/s  --:-- left", text_after(100, 0, 0))
    assert.equal("100% 0/0  0.0/s  00:05", text_after(0, 0, 5))
    assert.equal("7  3.5/s  00:02", text_after(nil, 7, 2))
    assert.equal(" 50% 1/2  1.0/s  00:01 left  loss 0.3", text_after(2, 1, 1, "loss 0.3"))
    assert.equal(" 99% 999/1000  999.0/s  00:00 left", text_after(1000, 999, 1))
  end)

  it("clears the line before print and puts print back", function()
    local before = print
    local printed = {}
    rawset(_G, "print", function(...) printed[#printed + 1] = table.concat({ ... }, " ") end)
    local ours = print
    local text
    local ok, err = pcall(function()
      text = written(true, function(tick)
        for i in progress(2) do
          tick(1)
          if i == 2 then print("hello", i) end
        end
      end)
      assert.equal(ours, print)
    end)
    rawset(_G, "print", before)
    assert.is_true(ok, err)
    assert.same({ "hello 2" }, printed)
    local _, clears = text:gsub("\r\27%[K", "")
    assert.equal(1, clears)
  end)

  local function on_terminal(code)
    local t = terminal.open {terminal.this_command(), "-e", code}
    local text = t:drain()
    t:close()
    return text
  end

  it("draws on a real terminal, with whole lines above the bar", function()
    if not terminal.is_available() then return pending "needs a pseudo-terminal" end
    local code = [[for i in require('argand.progress')(3, {label = 'go'}) do if i == 2 then print('between') end end]]
    local text = on_terminal(code)
    assert.is_truthy(text:find("\rgo  33% [" .. ("="):rep(10) .. (" "):rep(20) .. "] 1/3  ", 1, true), text)
    assert.is_truthy(text:find("\r\27[Kbetween\r\n", 1, true), text)
    assert.is_truthy(text:find("\rgo 100%% %[" .. ("="):rep(30) .. "%] 3/3  [^\r]*\27%[K\r\n$"), text)
  end)

  it("makes room for the error that ends its loop", function()
    if not terminal.is_available() then return pending "needs a pseudo-terminal" end
    local text = on_terminal "for i in require('argand.progress')(3) do if i == 2 then error('boo') end end"
    assert.is_truthy(text:find("1/3 [^\r]*\27%[K\r\27%[Kargand: [^\r]*boo"), text)
  end)

  it("is silent when quiet", function()
    assert.equal("", written(true, function(tick)
      for _ in progress(50, { quiet = true }) do tick(5) end
    end))
  end)

  it("refuses what it cannot loop over", function()
    local ok, err = pcall(progress, {})
    assert.is_false(ok)
    assert.equal("progress: source: expected an iterator function or a number, got table", err.message)
    ok, err = pcall(progress, 3, { totl = 4 })
    assert.is_false(ok)
    assert.equal("did you mean 'total'?", err.hint)
  end)
end)
